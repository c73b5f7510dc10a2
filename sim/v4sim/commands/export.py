"""`v4sim export`: a run as input for other runs and other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from v4sim.commands import talk

ENDINGS = (".parquet", ".jsonl")


def export(
    run: Annotated[Path, typer.Argument(help="Run directory, as `v4sim replay` writes it.")],
    trace: Annotated[
        Path, typer.Option("--trace", "-t", metavar="TRACE", help="The trace that it replayed.")
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="A trace (.parquet) or AIPerf records (.jsonl)."),
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write the calls of a run, with their simulated times, as a trace or as AIPerf records.

    Replayed at its own times on the same deployment, the trace gives the same calls again.
    """
    from v4sim.errors import ConfigError, RunError
    from v4sim.export import export_records, export_trace
    from v4sim.rundir import read_run
    from v4traces import read_table

    if output.suffix not in ENDINGS:
        raise ConfigError(f"{output} ends neither in .parquet (a trace) nor in .jsonl (AIPerf records).")
    stored, table = read_run(run), read_table(trace)
    replayed = stored.result["manifest"]["trace"]
    if replayed["sha256"] != table.sha256:
        raise RunError(
            f"{trace} is not the trace of {run}: that was {replayed['name']} with sha256 "
            f"{replayed['sha256'][:12]}…, this has {table.sha256[:12]}…. Give the file that was replayed."
        )
    if output.suffix == ".jsonl":
        count = export_records(stored.calls, table, output, force=force)
    else:
        closed = stored.result["manifest"]["workload"]["sessions"] is not None
        count = export_trace(stored.calls, table, output, closed_loop=closed, force=force)
    talk.say(f"Wrote {output}: {count:,} calls")
