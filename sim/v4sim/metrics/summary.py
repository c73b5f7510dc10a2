"""From a finished run to the object of `result.json`, without its manifest.

Two METRICS trees, of the steady window and of the whole run, from the same functions. Where the engine's
time was not recorded by epochs, steps and gaps between tokens of the steady tree are those of the whole
run and say so (`"scope": "full"`). Nothing is printed, no clock is read, and the same run gives the same
tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from v4sim.errors import CapacityError
from v4sim.metrics.bootstrap import SessionBootstrap
from v4sim.metrics.calls import Bools, Calls
from v4sim.metrics.cost import Price, cost_entry, step_split
from v4sim.metrics.epochs import EngineTotals, EpochRecorder
from v4sim.metrics.headline import headline
from v4sim.metrics.latency import latencies
from v4sim.metrics.outcomes import blocked_entry, calls_entry
from v4sim.metrics.parts import idle_share, speculation_entry, step_entries, whole_run
from v4sim.metrics.pools import pool_entries, series_entry
from v4sim.metrics.ranks import rank_entries
from v4sim.metrics.tasks import Tasks, tasks_entry
from v4sim.metrics.throughput import throughput
from v4sim.metrics.tokens import hits, tokens
from v4sim.metrics.window import Window, full_window, mean_alive, steady_window
from v4sim.results import RunResult

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.cost.base import StepCost
    from v4sim.workload import WorkloadOptions
    from v4traces.table import TraceTable


@dataclass(frozen=True, slots=True)
class Summary:
    """`tree` is what result.json says beside the manifest; the rest is what it was made of."""

    tree: Mapping[str, Any]
    calls: Calls
    trace: TraceTable
    tasks: Tasks
    steady: Window


@dataclass(frozen=True, slots=True)
class _Run:
    """What both METRICS trees are made from."""

    result: RunResult
    calls: Calls
    trace: TraceTable
    tasks: Tasks
    deployment: Deployment
    price: Price
    bootstrap: SessionBootstrap | None
    kv_bytes_per_token: float | None


def summarise(
    result: RunResult,
    table: TraceTable,
    deployment: Deployment,
    cost: StepCost | None = None,
    *,
    workload: WorkloadOptions | None = None,
    seed: int = 0,
    epochs: EpochRecorder | None = None,
) -> Summary:
    """Everything a run has to say. `seed` is that of the intervals; `cost` names its sources if given.

    `epochs` must have observed the run (`simulate.run(..., probes=[epochs])`). Raises ConfigError for a
    `workload.window` that is none.
    """
    from v4sim.config import resolve

    deployment = resolve(deployment)
    calls = Calls.of(result.calls)
    tasks = Tasks.of(calls, table)
    run = _Run(
        result,
        calls,
        table,
        tasks,
        deployment,
        _price(deployment),
        SessionBootstrap.over(tasks.of_call, len(tasks), seed),
        _kv_bytes_per_token(deployment),
    )
    request = workload.window if workload is not None else None
    steady = steady_window(calls, table, result.end_ns, result.alive_target, request)
    full = full_window(calls, result.end_ns)
    totals = epochs.everything() if epochs is not None else whole_run(result)
    steady_totals = epochs.over(steady) if epochs is not None else totals
    trees = {
        "steady": _metrics(run, steady, steady_totals, scope=None if epochs is not None else "full"),
        "full": _metrics(run, full, totals, scope=None),
    }
    alive = mean_alive(calls, table, result.end_ns, steady)
    window = {
        **steady.as_dict(),
        "sessions_alive": alive,
        "engine_start_s": steady_totals.start_ns / 1e9,
        "engine_end_s": steady_totals.end_ns / 1e9,
    }
    tree = {
        "headline": headline(trees["steady"], deployment, alive),
        "totals": _totals(run),
        "window": window,
        **trees,
        "series": series_entry(result),
        "provenance": cost.provenance() if cost is not None else [],
        "domain_warnings": cost.domain_warnings() if cost is not None else [],
        "assumptions": _assumptions(run, steady),
    }
    return Summary(tree, calls, table, tasks, steady)


def _metrics(run: _Run, window: Window, totals: EngineTotals, scope: str | None) -> dict[str, Any]:
    calls, deployment = run.calls, run.deployment
    gpus_per_replica = deployment.gpus_per_replica
    gpus = gpus_per_replica * run.result.num_replicas
    counted: Bools = window.holds(calls["sent_ns"])
    counted_tokens = tokens(calls, counted)
    entries = step_entries(totals)
    if scope is not None:
        for name in ("itl_ms", "itl_burst_ms"):
            entries[name]["scope"] = scope
    speculation = deployment.speculation
    return {
        **latencies(calls, run.trace, counted, run.bootstrap),
        **entries,
        "throughput": throughput(calls, window, gpus),
        "tokens": counted_tokens,
        "hit": hits(calls, run.trace, counted, run.bootstrap),
        "pools": pool_entries(run.result, window),
        "ranks": rank_entries(calls, run.result, totals, window),
        "speculation": speculation_entry(
            calls, counted, run.result, speculation.kind, speculation.draft_tokens
        ),
        "blocked": blocked_entry(calls, counted),
        "tasks": tasks_entry(run.tasks, calls, window, gpus_per_replica, run.kv_bytes_per_token),
        "cost": cost_entry(
            calls,
            run.tasks,
            window,
            run.price,
            gpus,
            gpus_per_replica,
            counted_tokens,
            step_split(totals),
            idle_share(totals, run.result.num_replicas),
            run.bootstrap,
        ),
        "calls": calls_entry(calls, counted),
    }


def _totals(run: _Run) -> dict[str, Any]:
    result, calls = run.result, run.calls
    return {
        "calls": len(calls),
        "sessions": calls.dense("session", "instance")[1],
        "tasks": len(run.tasks),
        "steps": result.num_steps,
        "steps_by_kind": dict(result.steps.counts),
        "prompt_tokens": int(calls["prompt_tokens"][calls.admitted].sum()),
        "output_tokens": int(calls["output_tokens"][calls.completed].sum()),
        "retractions": int(calls["retractions"].sum()),
        "simulated_s": result.end_ns / 1e9,
        "stepped_s": result.stepped_ns / 1e9,
        "replicas": result.num_replicas,
        "gpus": run.deployment.gpus_per_replica * result.num_replicas,
    }


def _price(deployment: Deployment) -> Price:
    hardware = deployment.hardware
    return Price(hardware.price_per_gpu_hour or 0.0, hardware.price_low, hardware.price_high)


def _kv_bytes_per_token(deployment: Deployment) -> float | None:
    """Device bytes that a token of history takes on its rank; None where no capacity can be planned."""
    from v4sim.capacity import pools
    from v4sim.model import spec

    try:
        planned = pools(deployment, spec(deployment.model.name))
    except CapacityError:
        return None
    per_gpu = planned.bytes_of("kv") / planned.kv_tokens if planned.kv_tokens else 0.0
    return per_gpu * deployment.parallel.attention_tp or None


def _assumptions(run: _Run, steady: Window) -> Sequence[str]:
    """What a reader should know before trusting the figures."""
    metadata = run.trace.metadata
    said = [*run.result.notes, f"The steady window is {steady.rule}."]
    if metadata.trace_class == "count_derived":
        said.append("Prefixes of this trace are inferred from token counts, not proven by block hashes.")
    if metadata.prefix_error_tokens:
        said.append(
            f"Shared prefixes may be up to {metadata.prefix_error_tokens} tokens longer than the trace says."
        )
    if metadata.token_scale == 1.0 and metadata.tokenizer not in ("deepseek-v4", "unknown"):
        said.append(f"Tokens were counted by another tokenizer ({metadata.tokenizer}).")
    if (run.trace.shared_output_tokens > 0).any():
        said.append("Outputs that return in the next prompt count as reusable, but are not in the hit bound.")
    if not (run.trace.success >= 0).any():
        said.append("The trace does not say which tasks succeeded, so there is no cost per successful task.")
    said.append(
        "A task is a root session with its sub-agents."
        if (run.trace.task < 0).all()
        else "Tasks are the trace's task_id."
    )
    return [*said, *metadata.notes]
