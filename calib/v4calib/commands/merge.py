"""`v4calib merge`: measured operations in the place of published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from v4calib.commands.options import Force


def merge(
    base: Annotated[str, typer.Argument(metavar="BASE", help="Built-in name or file.")],
    measured: Annotated[str, typer.Argument(metavar="MEASURED", help="What overrides it.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The merged profile.")],
    without: Annotated[
        str, typer.Option("--except", metavar="FAMILIES", help="Keep these of BASE, comma-separated.")
    ] = "",
    force: Force = False,
) -> None:
    """Put the measured operations of MEASURED over BASE; each keeps its provenance."""
    from v4calib.commands.options import write_whole
    from v4calib.merging import measured_part
    from v4calib.merging import merge as merged
    from v4sim.cost.profile import dump_profile, load_profile

    families = [word.strip() for word in without.split(",") if word.strip()]
    result = merged(load_profile(base), measured_part(load_profile(measured)), without=families)
    write_whole(output, dump_profile(result), force)
    print(output)
