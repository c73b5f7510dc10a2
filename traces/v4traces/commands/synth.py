"""`v4traces synth`: a seeded synthetic trace, or the bundled sample again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def synth(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Trace to write (.parquet).")
    ] = None,
    sessions: Annotated[
        int | None, typer.Option("--sessions", metavar="N", min=1, help="Root sessions.")
    ] = None,
    calls: Annotated[
        int | None, typer.Option("--calls", metavar="N", min=1, help="Sessions until there are N calls.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Seed of every draw.")] = None,
    arrivals: Annotated[
        float | None,
        typer.Option("--arrivals", metavar="RATE", help="Sessions per second, as absolute times [no times]."),
    ] = None,
    context_cap: Annotated[
        int | None, typer.Option("--context-cap", metavar="TOKENS", min=1, help="Longest prompt.")
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Make the bundled sample, byte for byte.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
) -> None:
    """Generate a trace with the statistics of measured coding-agent sessions."""
    from v4traces.commands.talk import wrote
    from v4traces.read import read_table
    from v4traces.synth import command

    path = command(
        output=output,
        sessions=sessions,
        seed=seed,
        sample=sample,
        arrivals_rate=arrivals,
        force=force,
        calls=calls,
        context_cap_tokens=context_cap,
    )
    wrote(path, read_table(path))
