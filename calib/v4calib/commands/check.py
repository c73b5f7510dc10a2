"""`v4calib check --against-published`: how well a profile repeats the rows it was made from.

Only rows that are not nodes of a table count, with the corrections that the profile makes (realistic top-k
scores). So the error of the tables and the error of a whole-engine model stay apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check(
    profiles: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROFILE]...", help="Built-in names or files [all built-in]."),
    ] = None,
    against_published: Annotated[
        bool, typer.Option("--against-published", help="Compare with the published kernel tables.")
    ] = False,
    wheel: Annotated[
        Path | None,
        typer.Option("--wheel", metavar="FILE", help="Read this wheel [the installed aiconfigurator-core]."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Check profiles; exit 1 where the median error is above 5 % or the 95th percentile above 15 %."""
    import json

    from v4calib.aic.source import Source
    from v4calib.errors import CalibError
    from v4calib.residual import residuals
    from v4sim.cost.profile import builtin_profiles, load_profile

    if not against_published:
        raise CalibError(
            "`v4calib check` needs something to check against: give --against-published to compare with the "
            "published kernel tables."
        )
    names = profiles or list(builtin_profiles())
    with Source(wheel) as source:
        found = [residuals(load_profile(name), source) for name in names]
    if as_json:
        print(json.dumps([report.as_dict() for report in found], indent=1))
    else:
        for report in found:
            print(report.text())
    return 0 if all(report.good for report in found) else 1
