"""One simulation: a trace, a deployment, a cost model and a workload in, a `RunResult` out.

Puts the parts together and owns nothing of what happens. Probes are attached here; whoever wants to
see more passes their own. Same arguments, same result, to the bit.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from v4sim import eventclass
from v4sim.acceptance import acceptance_table
from v4sim.clock import Turn, to_ns
from v4sim.engine.build import make_engine
from v4sim.engine.call import Call
from v4sim.engine.delayer import PrefillDelayer
from v4sim.engine.probe import Probe
from v4sim.engine.rank import Rank
from v4sim.engine.replica import Replica
from v4sim.errors import ConfigError
from v4sim.identity import identify
from v4sim.metrics.call_log import CallLog
from v4sim.metrics.steps import BlockRecorder, RankRecorder, SeriesRecorder, StepRecorder
from v4sim.prefix import PrefixIndex
from v4sim.results import PoolSummary, RunResult
from v4sim.router import RouterOptions, Target, make_router
from v4sim.router.front_end import FrontEnd
from v4sim.sessions import Sessions
from v4sim.speculation import AcceptanceModel, SpecPolicy
from v4sim.walks import Walks
from v4sim.workload import WorkloadOptions, families_of

if TYPE_CHECKING:
    from v4sim.capacity import RankPools
    from v4sim.config import Deployment
    from v4sim.cost.base import StepCost
    from v4sim.metrics.epochs import EpochRecorder
    from v4sim.model import ModelSpec
    from v4traces import TraceTable

_CLOCK_NS = 2**62


class _Admissions(Probe):
    """Settles a call's event class once it is known where its prefix came from."""

    def on_admit(self, rank: Rank, call: Call, now_ns: int) -> None:
        if call.retractions == 0 and call.admit_ns == now_ns:
            call.event_class = eventclass.after_admission(
                call.event_class,
                call.bound_tokens,
                call.hit_tokens,
                call.hit_host_tokens,
                call.hit_storage_tokens,
            )


def run(
    table: TraceTable,
    deployment: Deployment,
    cost: StepCost,
    workload: WorkloadOptions,
    *,
    seed: int = 0,
    stepwise: bool = False,
    pools: RankPools | None = None,
    spec: ModelSpec | None = None,
    probes: Sequence[Probe] = (),
    epochs: EpochRecorder | None = None,
) -> RunResult:
    """Replay `table` on `deployment` (any; it is resolved here) until the last call has ended.

    `pools` overrides the planned capacity (tests, studies). With `epochs` the totals of steps and
    tokens are kept by time there, and the result's are its sum. Raises ConfigError or CapacityError
    before anything is simulated; never prints.
    """
    from v4sim.capacity import pools as plan_pools
    from v4sim.config import rank_limits, resolve
    from v4sim.model import spec as model_spec

    deployment = resolve(deployment)
    spec = spec or model_spec(deployment.model.name)
    pools = pools or plan_pools(deployment, spec)
    limits = rank_limits(deployment)
    engine = deployment.engine
    _refuse_what_cannot_run(table, deployment)
    ranks_per_replica = deployment.parallel.attention_dp
    options, notes = workload.settled(table, ranks_per_replica * deployment.parallel.replicas)

    env = simpy.Environment(initial_time=0)
    identified = identify(table, deployment.cache.identity)
    prefixes = PrefixIndex(identified.content, engine.page_tokens, limits.hash_lookahead_tokens)
    acceptance, policy = _speculation(deployment, seed)
    walks = Walks(acceptance, table, prefixes.stride) if acceptance is not None else None
    by_priority = bool(table.priority.any())
    scheduler, new_rank = make_engine(
        deployment, limits, pools, spec, prefixes, identified.content, by_priority=by_priority
    )
    router_section = deployment.router
    targets = [
        Target(replica, rank)
        for replica in range(deployment.parallel.replicas)
        for rank in range(ranks_per_replica)
    ]
    router = make_router(
        RouterOptions(
            policy=router_section.policy,
            cache_threshold=router_section.cache_threshold,
            balance_abs=router_section.balance_abs,
            balance_rel=router_section.balance_rel,
            load_factor=router_section.load_factor,
            load_signal=router_section.load_signal,
            signal_period_ns=to_ns(router_section.signal_period_s),
            front_ends=engine.front_ends or 1,
        ),
        prefixes,
        targets,
        seed,
    )

    def on_done(call: Call, now_ns: int) -> None:
        router.done(call.replica * ranks_per_replica + call.rank, call.prompt_tokens)
        call.done.succeed()

    by_rank = RankRecorder(deployment.parallel.replicas, ranks_per_replica)
    recorder = StepRecorder() if epochs is None else epochs
    log = CallLog(table.turn, policy.draft_tokens, table.n * options.copies)
    blocks = BlockRecorder()
    observers: list[Probe] = [_Admissions(), by_rank, recorder, log, blocks, *probes]
    turn = Turn()
    replicas = [
        Replica(
            env,
            number,
            [new_rank(number, index) for index in range(ranks_per_replica)],
            scheduler,
            cost,
            spec=policy,
            walks=walks,
            spec_blocks_mixed=engine.kind == "sglang" and engine.spec_blocks_mixed_dp,
            delayer=PrefillDelayer(engine.prefill_delayer_max_passes, limits.max_running)
            if engine.prefill_delayer
            else None,
            on_done=on_done,
            probes=observers,
            stepwise=stepwise,
            turn=turn,
        )
        for number in range(deployment.parallel.replicas)
    ]
    series = SeriesRecorder(replicas)
    for replica in replicas:
        replica.listeners.add(series)

    request_ns, token_us = front_end(deployment)
    front = FrontEnd(
        deployment.parallel.replicas,
        engine.front_ends or 1,
        request_ns=request_ns,
        token_us=token_us,
        holds_answers=engine.kind == "sglang",
        seed=seed,
    )

    def route(call: Call) -> Target:
        session = call.session + call.copy * len(table.session_names)
        return targets[router.route(call.uid, session, call.prompt_tokens, int(env.now))]

    def submit(call: Call) -> Generator[simpy.Event, Any, None]:
        # A router in front of several servers chooses at once; a server spreads what it has tokenised.
        outside = len(replicas) > 1
        target = route(call) if outside else targets[0]
        now_ns = int(env.now)
        wait_ns = front.ready_ns(target.replica, call.uid, call.prompt_tokens, now_ns) - now_ns
        if wait_ns:
            yield env.timeout(wait_ns)
        if not outside:
            target = route(call)
        replicas[target.replica].submit(call, target.rank)

    sessions = Sessions(
        env,
        table,
        families_of(table),
        prefixes,
        options,
        submit,
        bound_tokens=identified.bound_tokens,
        seed=seed,
        default_max_new_tokens=engine.default_max_new_tokens,
    )
    sessions.start()
    try:
        env.run()
    except OverflowError:
        raise _beyond_the_clock("The run") from None
    end_ns = int(env.now)
    for probe in (*observers, series):
        probe.on_end(replicas, end_ns)
    totals = recorder if isinstance(recorder, StepRecorder) else recorder.everything()
    all_ranks = [rank for replica in replicas for rank in replica.ranks]
    calls = log.columns()
    _refuse_what_cannot_be_summed(calls)
    calls["stale_tokens"] = identified.stale_tokens[calls["row"]].astype(np.int32)
    calls["first_seen_ns"] = front.seen_ns(calls["first_token_ns"])
    return RunResult(
        calls=calls,
        steps=totals.steps,
        itl_burst=totals.itl_burst,
        itl_divided=totals.itl_divided,
        series=series.series(),
        ranks=[rank for replica in by_rank.ranks for rank in replica],
        pools=[summary for rank in all_ranks for summary in _summaries(rank)],
        blocked=_blocked(all_ranks),
        acceptance=acceptance.by_phase() if acceptance is not None else {},
        end_ns=end_ns,
        stepped_ns=by_rank.stepped_ns,
        num_replicas=deployment.parallel.replicas,
        alive_target=options.sessions,
        blocks=blocks.blocks,
        blocks_dropped=blocks.dropped,
        notes=notes,
    )


def front_end(deployment: Deployment) -> tuple[int, float]:
    """Host time before a call reaches its rank's queue: (ns per request, µs per prompt token).

    Every prompt token is tokenised, hashed and copied, whether the cache has it or not.
    """
    from v4sim.cost import engine_constants

    engine, constants = deployment.engine, engine_constants(deployment.engine.kind)
    request_us = constants.cpu_request_us.value if engine.cpu_request_us is None else engine.cpu_request_us
    token_us = (
        constants.cpu_cached_token_us.value
        if engine.cpu_cached_token_us is None
        else engine.cpu_cached_token_us
    )
    return round(request_us * 1000.0), token_us


def _speculation(deployment: Deployment, seed: int) -> tuple[AcceptanceModel | None, SpecPolicy]:
    speculation = deployment.speculation
    if speculation.kind == "off" or speculation.draft_tokens == 0:
        return None, SpecPolicy(0)
    name = speculation.acceptance
    if name == "auto":
        name = "v4-pro-dspark" if speculation.kind == "dspark" else "v4-pro-mtp"
    model = AcceptanceModel(acceptance_table(name), speculation.draft_tokens, seed)
    adaptive = speculation.adaptive_max_rows if speculation.adaptive else 0
    return model, SpecPolicy(speculation.draft_tokens, adaptive)


def _refuse_what_cannot_run(table: TraceTable, deployment: Deployment) -> None:
    """A prompt above the model's context is the trace's or the deployment's fault: say which row."""
    limit = deployment.model.max_context_tokens
    if table.n == 0:
        raise ConfigError(f"{table.path} has no calls: there is nothing to replay.")
    longest = int(np.argmax(table.prompt_tokens))
    if int(table.prompt_tokens[longest]) >= limit:
        raise ConfigError(
            f"{table.path}, {table.label(longest)}: prompt_tokens {int(table.prompt_tokens[longest])} does "
            f"not fit the model's context of {limit} tokens; drop that session from the trace, or raise "
            "model.max_context_tokens if the deployed model allows it."
        )


def _refuse_what_cannot_be_summed(calls: dict[str, Any]) -> None:
    """Gaps between tokens are summed over all calls in 64 bits."""
    ended = calls["last_token_ns"] >= 0
    decoding = (calls["last_token_ns"][ended] - calls["first_token_ns"][ended]).astype(np.float64)
    if decoding.sum() > _CLOCK_NS:
        raise _beyond_the_clock("The time of all calls together")


def _beyond_the_clock(what: str) -> ConfigError:
    return ConfigError(
        f"{what} passes {_CLOCK_NS / 3.156e16:,.0f} years of simulated time, and nanoseconds of more do not "
        "fit into 64 bits. Some time that was given must be absurd: check the profile, engine.cpu_*_us, and "
        "the times of the trace."
    )


def _summaries(rank: Rank) -> list[PoolSummary]:
    owner = rank.owner
    resident = {"kv": owner.kv_resident, "swa": owner.tree.swa_tokens, "slots": 0}
    evicted = {"kv": owner.tree.evicted_tokens, "swa": owner.tree.swa_evicted_tokens, "slots": 0}
    return [
        PoolSummary(
            pool.name,
            rank.replica,
            rank.index,
            pool.capacity,
            pool.peak,
            pool.used,
            resident[pool.name],
            evicted[pool.name],
        )
        for pool in owner.pools
    ]


def _blocked(ranks: Sequence[Rank]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for rank in ranks:
        for reason, (calls, waited) in rank.blocked.totals.items():
            before = found.get(reason, (0, 0))
            found[reason] = (before[0] + calls, before[1] + waited)
    return dict(sorted(found.items()))
