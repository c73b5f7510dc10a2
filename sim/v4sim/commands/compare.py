"""`v4sim compare`: what changed from one run to another, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from v4sim.commands import talk


def compare(
    run_a: Annotated[Path, typer.Argument(metavar="A", help="Run directory to compare with.")],
    run_b: Annotated[Path, typer.Argument(metavar="B", help="Run directory whose differences are shown.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write [B/compare.html].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a page that shows two runs side by side; prints its path."""
    import v4reports

    with talk.progress("comparison"):
        page = v4reports.compare(run_a, run_b, output, force)
    print(page)
