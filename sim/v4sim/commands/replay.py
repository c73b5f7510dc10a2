"""`v4sim replay`: a trace, a deployment and a profile become a run directory.

The command puts the parts in order and says what it assumed; each part checks its own input. All
that can be refused is refused before the simulation starts, the target folder included.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from v4sim.commands import arguments, talk
from v4sim.errors import LawError

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.results import RunResult
    from v4traces import TraceTable

NO_FEASIBLE_ANSWER = 1


def replay(
    trace: Annotated[Path, typer.Argument(help="Trace to replay (.parquet, made by `v4traces import`).")],
    deployment: Annotated[
        str | None,
        typer.Option("--deployment", "-d", metavar="PRESET|FILE", help="Preset name or .toml file."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", metavar="NAME|FILE", help="Calibration profile [the GPU's own]."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Run directory to make [TRACE-run].")
    ] = None,
    sessions: Annotated[
        int | None, typer.Option("--sessions", metavar="N", help="Closed loop: keep N sessions alive.")
    ] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(
            "--arrivals",
            metavar="trace|poisson:RATE",
            help="Open loop: the trace's times, or RATE sessions/s.",
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            "--window", metavar="A:B", help="Steady window, in seconds (120:600) or shares (10%:90%)."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of every random draw.")] = 0,
    stepwise: Annotated[
        bool, typer.Option("--stepwise", help="Run every step by itself: slower, the same result.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Check the laws of the simulation.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the deployment; may be repeated."),
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Leave report.html out.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print result.json instead of the summary.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run directory if it exists.")] = False,
) -> int:
    """Replay TRACE and write a run directory with its report."""
    from v4sim import config, rundir, simulate
    from v4sim.commands.manifest import manifest
    from v4sim.commands.summary import served_no_call, summary
    from v4sim.commands.watch import EndedCalls
    from v4sim.cost import compile_cost, load_profile
    from v4sim.metrics import summarise
    from v4sim.metrics.epochs import EpochRecorder
    from v4sim.model import spec
    from v4traces import read_table

    folder = arguments.run_folder(output, trace)
    rundir.check_target(folder, force)
    workload = arguments.workload(sessions, arrivals, window)
    table = read_table(trace)
    deployed = config.resolve(config.load(deployment or config.DEFAULT_PRESET, settings or []))
    model = spec(deployed.model.name)
    measured = load_profile(profile or deployed.hardware.gpu)
    cost = compile_cost(measured, deployed, model)
    replicas, ranks = deployed.parallel.replicas, deployed.parallel.attention_dp
    workload, notes = workload.settled(table, replicas * ranks)
    for given, assumed in (
        (deployment, f"deployment: {deployed.name}"),
        (profile, f"profile: {measured.name}"),
        (output, f"run directory: {folder}"),
    ):
        if given is None:
            talk.say(f"default {assumed}")
    talk.say(f"seed {seed}")
    for note in notes:
        talk.say(f"default workload: {note}")

    talk.say(f"simulating {table.n:,} calls on {deployed.name}")
    with talk.progress("simulating") as advance, uncollected():
        epochs = EpochRecorder(replicas, ranks)
        probes = [EndedCalls(advance, table.n * workload.copies)] if advance else []
        result = simulate.run(
            *(table, deployed, cost, workload),
            seed=seed,
            stepwise=stepwise,
            spec=model,
            probes=probes,
            epochs=epochs,
        )
    if check:
        hold_to_laws(result, table, deployed)
    found = summarise(result, table, deployed, cost, workload=workload, seed=seed, epochs=epochs)
    origin = manifest(table, deployed, measured, workload, seed)
    rundir.write_run(result, found, origin, folder, force=force, finish=None if no_report else render_report)
    for name in sorted(path.name for path in folder.iterdir()):
        talk.wrote(folder / name)

    written = rundir.result_object(found, origin)
    print(rundir.result_json(written).decode() if as_json else summary(written), end="" if as_json else "\n")
    return NO_FEASIBLE_ANSWER if served_no_call(written) else 0


@contextmanager
def uncollected() -> Iterator[None]:
    """No cyclic garbage collection: a simulation makes millions of objects and hardly a cycle among them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def hold_to_laws(result: RunResult, table: TraceTable, deployment: Deployment) -> None:
    """Raise LawError with every broken law; say so when all of them hold."""
    from v4sim.laws import check_laws

    findings = check_laws(result, table, deployment)
    if findings:
        broken = " ".join(f"({number}) {finding.message}" for number, finding in enumerate(findings, 1))
        raise LawError(
            f"the run breaks {len(findings)} of its laws: its numbers cannot be trusted and are not written. "
            f"This is a defect of v4sim; please report it with the trace or a cut of it. {broken}"
        )
    talk.say("checked: every law holds")


def render_report(run_folder: Path) -> None:
    import v4reports

    v4reports.render(run_folder)
