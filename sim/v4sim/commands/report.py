"""`v4sim report`: the HTML page of a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from v4sim.commands import talk


def report(
    run: Annotated[Path, typer.Argument(help="Run directory, as `v4sim replay` writes it.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write [RUN/report.html].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write the report of a run directory; prints its path."""
    import v4reports

    with talk.progress("report"):
        page = v4reports.render(run, output, force)
    print(page)
