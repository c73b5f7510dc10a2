"""`v4sim replay`: a trace, a deployment and a profile become a run directory.

The command puts the parts in order and says what it assumed; each part checks its own input. All
that can be refused is refused before the simulation starts, the target folder included.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from v4sim.commands import arguments, talk
from v4sim.commands.garbage import uncollected
from v4sim.commands.options import (
    Arrivals,
    Deployed,
    ForceRun,
    NoReport,
    ProfileName,
    Seed,
    Sessions,
    Settings,
    Trace,
    WindowText,
)
from v4sim.commands.prepare import prepare
from v4sim.errors import LawError

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.metrics import Summary
    from v4sim.results import RunResult
    from v4sim.scenario import Scenario
    from v4traces import TraceTable

NO_FEASIBLE_ANSWER = 1


def replay(
    trace: Trace,
    deployment: Deployed = None,
    profile: ProfileName = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Run directory to make [TRACE-run].")
    ] = None,
    sessions: Sessions = None,
    arrivals: Arrivals = None,
    window: WindowText = None,
    seed: Seed = 0,
    stepwise: Annotated[
        bool, typer.Option("--stepwise", help="Run every step by itself: slower, the same result.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Check the laws of the simulation.")] = False,
    settings: Settings = None,
    no_report: NoReport = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print result.json instead of the summary.")
    ] = False,
    force: ForceRun = False,
) -> int:
    """Replay TRACE and write a run directory with its report."""
    from v4sim import rundir
    from v4sim.commands.manifest import manifest
    from v4sim.commands.summary import served_no_call, summary

    folder = arguments.run_folder(output, trace)
    rundir.check_target(folder, force)
    scenario = prepare(trace, deployment, profile, settings, sessions, arrivals, window, seed)
    if output is None:
        talk.say(f"default run directory: {folder}")

    talk.say(f"simulating {scenario.table.n:,} calls on {scenario.deployment.name}")
    result, found = simulated(scenario, stepwise=stepwise, check=check)
    origin = manifest(scenario)
    rundir.write_run(result, found, origin, folder, force=force, finish=None if no_report else render_report)
    for name in sorted(path.name for path in folder.iterdir()):
        talk.wrote(folder / name)

    written = rundir.result_object(found, origin)
    print(rundir.result_json(written).decode() if as_json else summary(written), end="" if as_json else "\n")
    return NO_FEASIBLE_ANSWER if served_no_call(written) else 0


def simulated(
    scenario: Scenario, *, stepwise: bool = False, check: bool = False
) -> tuple[RunResult, Summary]:
    """Run a scenario where a person may be watching, and sum it up; with `check`, hold it to its laws."""
    from v4sim.commands.watch import EndedCalls
    from v4sim.metrics import summarise
    from v4sim.metrics.epochs import EpochRecorder

    table, deployed, workload = scenario.table, scenario.deployment, scenario.workload
    cost = scenario.cost()
    with talk.progress("simulating") as advance, uncollected():
        epochs = EpochRecorder(deployed.parallel.replicas, deployed.parallel.attention_dp)
        probes = [EndedCalls(advance, table.n * workload.copies)] if advance else []
        result = scenario.run(cost, stepwise=stepwise, probes=probes, epochs=epochs)
    if check:
        hold_to_laws(result, table, deployed)
    summed_up = summarise(result, table, deployed, cost, workload=workload, seed=scenario.seed, epochs=epochs)
    return result, summed_up


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
