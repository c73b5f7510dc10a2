"""Law 7: pricing many decode steps at once gives exactly what taking every step alone gives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from v4sim.config import Deployment, resolve
from v4sim.cost import compile_cost, load_profile
from v4sim.cost.base import ConstantCost
from v4sim.model import spec
from v4sim.results import RunResult
from v4sim.workload import WorkloadOptions
from v4traces import CallRef, CallRow

# Step times and delays share a grid, so that arrivals, finishes and step ends often coincide.
_TICK_S = 0.001
_COSTS = (ConstantCost(_TICK_S), ConstantCost(_TICK_S, _TICK_S, 0.0), ConstantCost(0.0007, 0.00013, 1e-6))


@st.composite
def traces(draw: st.DrawFn) -> list[CallRow]:
    """A few sessions of a few turns, forks and rollbacks among them, many at equal times."""
    rows: list[CallRow] = []
    shared = draw(st.sampled_from([0, 300, 1024]))
    arrival = 0.0
    for session in range(draw(st.integers(1, 7))):
        name = f"s{session}"
        arrival += draw(st.sampled_from([0, 0, 1, 5])) * _TICK_S
        previous: list[CallRow] = []
        for turn in range(draw(st.integers(1, 4))):
            output = draw(st.one_of(st.integers(1, 40), st.integers(200, 900)))
            priority = draw(st.sampled_from([0, 0, 0, 1]))
            asked = draw(st.sampled_from([None, output, output + 64, 4096]))
            if not previous:
                fork = draw(st.booleans()) and rows
                parent = draw(st.sampled_from(rows)) if fork else None
                prompt = draw(st.one_of(st.integers(1, 3000), st.integers(3000, 9000)))
                keep = min(parent.prompt_tokens, prompt) if parent else 0
                row = CallRow(
                    session_id=name,
                    turn=0,
                    parent_session=parent.session_id if parent else None,
                    parent_turn=parent.turn if parent else None,
                    shared_tokens=draw(st.integers(0, keep)) if parent else 0,
                    group_id="g" if shared and not parent else None,
                    group_tokens=min(shared, prompt) if shared and not parent else None,
                    prompt_tokens=prompt,
                    output_tokens=output,
                    arrival_s=arrival,
                    priority=priority,
                    max_output_tokens=asked,
                    after=(),
                )
            else:
                parent = draw(st.sampled_from(previous))
                whole = parent is previous[-1] and draw(st.booleans())
                keep = parent.prompt_tokens if whole else draw(st.integers(0, parent.prompt_tokens))
                also = parent.output_tokens if whole and draw(st.booleans()) else 0
                row = CallRow(
                    session_id=name,
                    turn=turn,
                    parent_session=name,
                    parent_turn=parent.turn,
                    shared_tokens=keep,
                    shared_output_tokens=also if also else None,
                    prompt_tokens=keep + also + draw(st.integers(1, 900)),
                    output_tokens=output,
                    delay_s=draw(st.integers(0, 6)) * _TICK_S,
                    trigger="tool_result",
                    priority=priority,
                    max_output_tokens=asked,
                    after=(CallRef(name, turn - 1),),
                )
            previous.append(row)
            rows.append(row)
    return rows


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Engine, parallelism, speculation and pools small enough to be short of memory."""
    vllm = draw(st.booleans())
    dp = draw(st.sampled_from([1, 2, 4]))
    sets = [
        "parallel.ep=4",
        f"router.policy={draw(st.sampled_from(['round_robin', 'least_requests', 'sticky']))}",
    ]
    replicas = draw(st.sampled_from([1, 1, 2]))
    if replicas == 2:
        sets += ["parallel.replicas=2", "hardware.num_gpus=8"]
    drafts = draw(st.sampled_from([0, 0, 1, 3]))
    if drafts:
        sets += ["speculation.kind=mtp", f"speculation.draft_tokens={drafts}"]
        if draw(st.booleans()):
            sets += ["speculation.adaptive=true", "speculation.adaptive_max_rows=1"]
    if vllm:
        sets += [
            "engine.kind=vllm",
            f"engine.async_scheduling={draw(st.sampled_from(['true', 'false']))}",
            f"engine.max_batched_tokens={draw(st.sampled_from([512, 2048]))}",
            f"engine.reserve_full_isl={draw(st.sampled_from(['true', 'false']))}",
            f"engine.prefill_schedule_interval={draw(st.sampled_from([1, 1, 3]))}",
        ]
    else:
        sets += [
            f"engine.overlap={draw(st.sampled_from(['true', 'false']))}",
            f"engine.chunked_prefill_tokens={draw(st.sampled_from([512, 2048])) * dp}",
            f"engine.prefill_decode_interval={draw(st.sampled_from([0, 0, 2]))}",
            f"engine.schedule_policy={draw(st.sampled_from(['fcfs', 'lpm']))}",
            f"engine.conservativeness={draw(st.sampled_from([0.0, 0.0, 1.0]))}",
        ]
        if draw(st.booleans()):
            sets += ["engine.prefill_delayer=true", "engine.prefill_delayer_max_passes=3"]
        if not drafts and draw(st.booleans()):
            sets.append("engine.mixed_chunk=true")
    return {
        "sets": sets,
        "dp": dp,
        "kv_tokens": draw(st.sampled_from([4096, 5120, 8192, 1 << 17])),
        "swa_tokens": draw(st.sampled_from([4096, 1 << 17])),
        "slots": draw(st.sampled_from([1, 3, 64])),
        "kept_blocks": draw(st.sampled_from([0, 1, 3])),
        "cost": draw(st.sampled_from(_COSTS)),
    }


def assert_same(a: RunResult, b: RunResult) -> None:
    assert a.calls.keys() == b.calls.keys()
    for name, column in a.calls.items():
        assert np.array_equal(np.asarray(column), np.asarray(b.calls[name])), name
    assert a.steps.counts == b.steps.counts
    for kind, parts in a.steps.parts_ns.items():
        assert np.array_equal(parts, b.steps.parts_ns[kind])
    for mine, theirs in ((a.itl_burst, b.itl_burst), (a.itl_divided, b.itl_divided)):
        mine.flush()
        theirs.flush()
        assert np.array_equal(mine.counts, theirs.counts)
        assert mine.total_ns == theirs.total_ns
    for name, values in a.series.items():
        assert np.array_equal(values, b.series[name]), name
    assert a.pools == b.pools
    assert a.ranks == b.ranks
    assert a.blocked == b.blocked
    assert a.acceptance == b.acceptance
    assert a.end_ns == b.end_ns


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=traces(), world=worlds(), seed=st.integers(0, 3), closed=st.booleans())
def test_blocks_equal_single_steps_exactly(
    simulate_rows: Callable[..., RunResult],
    as_if_compiled: Callable[[], AbstractContextManager[None]],
    rows: list[CallRow],
    world: dict[str, Any],
    seed: int,
    closed: bool,
) -> None:
    """Arrivals at equal times, speculation, forks and memory pressure included."""
    workload = WorkloadOptions(sessions=2) if closed else WorkloadOptions(arrivals="trace")
    blocks = simulate_rows(rows, workload=workload, seed=seed, **world)
    single = simulate_rows(rows, workload=workload, seed=seed, stepwise=True, **world)
    assert_same(blocks, single)
    with as_if_compiled():
        loops = simulate_rows(rows, workload=workload, seed=seed, **world)
    assert_same(loops, single)
    assert blocks.num_calls == len(rows)
    for pool in blocks.pools:
        assert pool.peak <= pool.capacity
        assert pool.used_at_end == pool.resident_at_end, f"{pool} leaks"


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=traces(), world=worlds(), gpu=st.sampled_from(["b200", "h200"]))
def test_blocks_equal_single_steps_at_the_prices_of_a_profile(
    simulate_rows: Callable[..., RunResult],
    small_deployment: Callable[..., Deployment],
    as_if_compiled: Callable[[], AbstractContextManager[None]],
    rows: list[CallRow],
    world: dict[str, Any],
    gpu: str,
) -> None:
    world["sets"] = [*world["sets"], f"hardware.gpu={gpu}"]
    deployment = resolve(small_deployment(world["sets"], world["dp"]))
    world["cost"] = compile_cost(load_profile(gpu), deployment, spec("v4-flash"))
    single = simulate_rows(rows, stepwise=True, **world)
    assert_same(simulate_rows(rows, **world), single)
    with as_if_compiled():
        assert_same(simulate_rows(rows, **world), single)


def test_a_call_that_follows_from_another_replicas_choice_comes_after_its_own(
    simulate_rows: Callable[..., RunResult],
) -> None:
    """Replica 1 gives up on a head in its choice at 2 ms. What follows reaches replica 0, which has chosen at
    2 ms already: it is seen at 3 ms, whether replica 0 takes its steps in a block or one by one."""

    def call(session: str, turn: int, prompt: int, output: int = 1) -> CallRow:
        return CallRow(
            session_id=session,
            turn=turn,
            prompt_tokens=prompt,
            output_tokens=output,
            arrival_s=None if turn else 0.0,
            after=(CallRef(session, turn - 1),) if turn else (),
        )

    rows = [call("ends", 0, 1), call("decodes", 0, 1, 4)]
    rows += [call("given up", 0, 1), call("given up", 1, 768), call("given up", 2, 1)]
    world: dict[str, Any] = {
        "sets": [
            *("parallel.replicas=2", "hardware.num_gpus=8", "parallel.ep=4", "router.policy=round_robin"),
            *("engine.overlap=false", "engine.chunked_prefill_tokens=1024", "engine.conservativeness=0.0"),
        ],
        "dp": 2,
        "kv_tokens": 5120,
        "swa_tokens": 4096,
        "slots": 1,
        "workload": WorkloadOptions(sessions=2),
    }
    blocks, single = (
        simulate_rows(rows, cost=ConstantCost(_TICK_S), stepwise=stepwise, **world)
        for stepwise in (False, True)
    )
    assert_same(blocks, single)
    follower = blocks.calls["row"].tolist().index(4)
    assert (blocks.calls["first_token_ns"] < 0).sum() == 1, "one was given up"
    assert blocks.calls["queued_ns"][follower] == 2_000_000
    assert blocks.calls["admit_ns"][follower] == 3_000_000
