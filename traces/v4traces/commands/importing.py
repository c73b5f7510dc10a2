"""`v4traces import`: logs become a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_(
    source_format: Annotated[
        str, typer.Argument(metavar="FORMAT", help="Format of the sources: weka or mooncake.")
    ],
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="SRC...", help="Files (.json, .jsonl, .tar; also .gz, .xz) or folders."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Trace to write (.parquet).")
    ],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Take only the first N sessions.")
    ] = None,
    salt: Annotated[
        str,
        typer.Option("--salt", metavar="TEXT", help="Key of the hashed ids [the first source's content]."),
    ] = "",
) -> None:
    """Import logs into one trace. No text, path, command or name of the sources reaches it."""
    from v4traces.commands.talk import counter, wrote
    from v4traces.importers import importer
    from v4traces.importers.base import ImportOptions, import_trace

    kind = importer(source_format)
    with counter("Importing, documents read") as progress:
        summary = import_trace(
            kind, sources, output, ImportOptions(limit, salt), force=force, progress=progress
        )
    wrote(summary.path, summary.table)
