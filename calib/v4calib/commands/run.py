"""`v4calib run`: measure this device, fit, and write a profile with its rows beside it.

The rows are on disk as soon as they are measured: after Ctrl-C or a crash, `--resume` goes on where it
stopped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from v4calib.commands.options import DeviceKind, Force, Full, Gpu, Models, Ops, Quick


def run(
    ops: Ops = None,
    models: Models = None,
    quick: Quick = False,
    full: Full = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The profile; rows go beside it.")
    ] = Path("profile.json"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the rows that are there.")] = False,
    device: DeviceKind = "cuda",
    gpu: Gpu = None,
    limit_minutes: Annotated[
        float | None,
        typer.Option("--minutes", metavar="N", help="Stop measuring then, and fit what is there."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the order of points.")] = 0,
    compile_s: Annotated[
        float,
        typer.Option("--compile-limit", metavar="SECONDS", help="A kernel that compiles longer is left out."),
    ] = 120.0,
    force: Force = False,
) -> None:
    """Measure the kernels on this device and write a calibration profile."""
    from datetime import UTC, datetime
    from time import monotonic

    import v4kernels
    from v4calib.commands.options import grid_name, models_of, rows_path, say
    from v4calib.commands.progress import Meter
    from v4calib.commands.writing import write_profile
    from v4calib.devices import open_device
    from v4calib.errors import CalibError, Interrupted
    from v4calib.grid import grid
    from v4calib.journal import Header, Journal
    from v4calib.measure import run as measure
    from v4calib.plan import PASSES, jobs_for, minutes
    from v4calib.plan import plan as planned
    from v4calib.provenance import commit_of

    begin = monotonic()
    chosen = models_of(models)
    axes = grid(grid_name(quick, full, device))
    jobs = jobs_for(ops or [], chosen, axes)
    if output.exists() and not (force or resume):
        raise CalibError(
            f"{output} exists: give --force to replace it, --resume to go on, or another file with -o."
        )

    def over() -> bool:
        return limit_minutes is not None and monotonic() - begin > 60 * limit_minutes

    opened = open_device(device, gpu, compile_s)
    try:
        header = Header(
            facts=opened.facts,
            grid=axes.name,
            operations=tuple(job.operation.name for job in jobs),
            models=chosen,
            seed=seed,
            passes=PASSES,
            started=datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
            commit=commit_of(Path(next(iter(v4kernels.__path__)))),
        )
        journal = Journal(rows_path(output), header, resume=resume, force=force)
        rows = planned(jobs, axes, opened.facts)
        say(f"{opened.facts.name}: {sum(r.points for r in rows)} points, about {minutes(rows):.0f} minutes")
        try:
            with journal, Meter(sys.stderr) as meter:
                measure(opened, jobs, journal, axes.budget, meter.show, over)
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted; {len(journal.rows)} rows are kept in {journal.path}: go on with --resume"
            ) from None
    finally:
        opened.close()
    if over():
        say(f"the limit of {limit_minutes:g} minutes is reached: --resume measures what is left")
    write_profile(journal.header, journal.rows, output, None, force=True)
