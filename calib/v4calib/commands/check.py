"""`v4calib check`: how well a profile repeats rows that it was not made from.

By default the held-out rows of its own run, which lie beside it; with --against-published the rows of the
published tables that are not nodes of its own. One report and one kind of limit for both. The error of a
whole-engine model stays apart: that is `v4sim backtest`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from v4calib.residual import Goals, ResidualReport


def check(
    profiles: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROFILE]...", help="Built-in names or files [all built-in]."),
    ] = None,
    against_published: Annotated[
        bool, typer.Option("--against-published", help="Compare with the published kernel tables.")
    ] = False,
    rows: Annotated[
        Path | None,
        typer.Option("--rows", metavar="FILE", help="Rows of the run [beside the profile]."),
    ] = None,
    median: Annotated[
        float | None, typer.Option("--median", help="Largest median error that passes [0.05; CPU 0.5].")
    ] = None,
    p95: Annotated[
        float | None, typer.Option("--p95", help="Largest 95th percentile that passes [0.15; CPU 3].")
    ] = None,
    wheel: Annotated[
        Path | None,
        typer.Option("--wheel", metavar="FILE", help="Read this wheel [the installed aiconfigurator-core]."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Check profiles against rows they were not made from; exit 1 above the limits."""
    import json

    from v4calib.residual import Goals
    from v4sim.cost.profile import builtin_profiles, load_profile

    if median is None and p95 is None:
        goals = None
    else:
        standard = Goals()
        goals = Goals(standard.median if median is None else median, standard.p95 if p95 is None else p95)
    if against_published:
        from v4calib.aic.source import Source
        from v4calib.residual import residuals

        with Source(wheel) as source:
            names = profiles or list(builtin_profiles())
            found = [residuals(load_profile(name), source, goals or Goals()) for name in names]
    else:
        found = [_held_out(name, rows, goals) for name in profiles or list(builtin_profiles())]
    if as_json:
        print(json.dumps([report.as_dict() for report in found], indent=1))
    else:
        for report in found:
            print(report.text())
    return 0 if all(report.good for report in found) else 1


def _held_out(name: str, rows: Path | None, goals: Goals | None) -> ResidualReport:
    from v4calib.commands.options import rows_path
    from v4calib.errors import CalibError
    from v4calib.journal import read_journal
    from v4calib.residual import held_out_residuals
    from v4sim.cost.profile import load_profile

    profile = load_profile(name)
    path = rows or rows_path(Path(name))
    if not path.exists():
        raise CalibError(
            f"{name} has no rows beside it ({path}): name them with --rows, or give --against-published to "
            "compare with the published kernel tables."
        )
    header, found = read_journal(path)
    return held_out_residuals(profile, header, found, goals)
