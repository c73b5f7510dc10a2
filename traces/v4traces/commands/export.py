"""`v4traces export`: a trace for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    trace: Annotated[Path, typer.Argument(help="Trace to export (.parquet).")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Mooncake lines (.jsonl).")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
) -> None:
    """Write a trace as Mooncake lines: block ids of 512 tokens, times in milliseconds."""
    from v4traces.commands.talk import say
    from v4traces.export import write_mooncake
    from v4traces.read import read_table

    lines = write_mooncake(read_table(trace), output, force=force)
    say(f"Wrote {output}: {lines} lines")
