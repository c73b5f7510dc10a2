"""`v4calib fit`: rows of a run to a profile, again or on another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from v4calib.commands.options import Force


def fit(
    rows: Annotated[Path, typer.Argument(metavar="ROWS", help="The .rows.jsonl of a run, or its profile.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The profile [beside the rows].")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base", metavar="PROFILE", help="What is not measured comes from here [the GPU's own]."
        ),
    ] = None,
    measured_only: Annotated[
        bool, typer.Option("--measured-only", help="Write measured operations alone.")
    ] = False,
    force: Force = False,
) -> None:
    """Fit the rows of a run and write the profile."""
    from v4calib.commands.options import rows_path
    from v4calib.commands.writing import write_profile
    from v4calib.errors import CalibError
    from v4calib.journal import read_journal

    if base is not None and measured_only:
        raise CalibError("--base and --measured-only exclude each other: give one.")
    path = rows_path(rows) if rows.suffix == ".json" else rows
    header, found = read_journal(path)
    target = output or path.with_name(path.name.removesuffix(".rows.jsonl") + ".json")
    write_profile(header, found, target, base, force=force, measured_only=measured_only)
