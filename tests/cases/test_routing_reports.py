"""Public reports about data-parallel ranks and routers, with their own numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from v4sim.results import RunResult
from v4traces import CallRow

Simulate = Callable[..., RunResult]


def growing_session(name: str, base: int, step: int, turns: int) -> list[CallRow]:
    """Turn t has base + t·step tokens, all of the turn before among them."""
    return [
        CallRow(
            session_id=name,
            turn=t,
            parent_session=name if t else None,
            parent_turn=t - 1 if t else None,
            shared_tokens=base + (t - 1) * step if t else 0,
            prompt_tokens=base + t * step,
            output_tokens=1,
            arrival_s=None if t else 0.0,
        )
        for t in range(turns)
    ]


@pytest.mark.parametrize(("policy", "lag"), [("round_robin", 16), ("sticky", 1), ("cache_aware", 1)])
def test_round_robin_hits_what_was_cached_one_round_ago_affinity_the_last_turn(
    simulate_rows: Simulate, policy: str, lag: int
) -> None:
    """sglang#26611: one client on 16 ranks; hit at turn t = size(t − 16), or size(t − 1) with affinity."""
    base, step, turns = 1024, 512, 40
    rows = growing_session("s", base, step, turns)
    sets = [f"router.policy={policy}"]
    hits = simulate_rows(rows, dp=16, sets=sets).calls["hit_tokens"].tolist()
    assert hits == [base + (t - lag) * step if t >= lag else 0 for t in range(turns)]


def test_a_skew_of_two_and_a_half_becomes_idle_time_of_all(simulate_rows: Simulate) -> None:
    """sglang#35964: loads 14.18/5.66/6.37/8.07 (here hundreds of steps): lockstep utilisation 60.4 %."""
    loads = [1418, 566, 637, 807]
    rows = [
        CallRow(session_id=f"s{i}", turn=0, prompt_tokens=1, output_tokens=steps, arrival_s=0.0)
        for i, steps in enumerate(loads)
    ]
    result = simulate_rows(rows, dp=4, sets=["engine.overlap=false"])
    busy = [rank.busy_ns for rank in result.ranks]
    assert busy == [steps * 1_000_000 for steps in loads]
    assert sum(busy) / (4 * result.stepped_ns) == pytest.approx(0.604, abs=0.0005)
    assert max(busy) / np.mean(busy) == pytest.approx(1.65, abs=0.005)


@pytest.mark.parametrize(
    ("sets", "loads"),
    [
        (["router.policy=cache_aware"], [0, 0, 8, 8]),
        (["router.policy=cache_aware", "router.balance_abs=1"], [3, 4, 4, 5]),
        (["router.policy=cache_aware", "router.balance_abs=0"], [4, 4, 4, 4]),
    ],
)
def test_absolute_affinity_pins_a_group_to_a_rank_and_a_bound_spreads_it(
    simulate_rows: Simulate, sets: list[str], loads: list[int]
) -> None:
    """tpu-inference#3307: two groups of eight streams on four ranks; with affinity alone two get nothing."""
    rows = [
        CallRow(
            session_id=f"s{i}",
            turn=0,
            group_id=f"g{i % 2}",
            group_tokens=4096,
            prompt_tokens=5000,
            output_tokens=500,
            arrival_s=i * 1e-4,
        )
        for i in range(16)
    ]
    calls = simulate_rows(rows, dp=4, sets=sets).calls
    assert sorted(np.bincount(calls["rank"], minlength=4).tolist()) == loads


def test_rendezvous_keeps_every_rank_within_its_factor_of_the_mean(simulate_rows: Simulate) -> None:
    """The same sixteen streams: no rank above 1.25 times its share (of 16 + 1) while all are in flight."""
    rows = [
        CallRow(session_id=f"s{i}", turn=0, prompt_tokens=5000, output_tokens=500, arrival_s=i * 1e-4)
        for i in range(16)
    ]
    for seed in range(5):
        sets = ["router.policy=rendezvous", "router.signal_period_s=0"]
        calls = simulate_rows(rows, dp=4, sets=sets, seed=seed).calls
        assert np.bincount(calls["rank"], minlength=4).max() <= 1.25 * 16 / 4


@pytest.mark.parametrize(("signal", "hit"), [("active_work", 800_000), ("resident_tokens", 0)])
def test_a_long_session_stays_with_its_cache_unless_history_is_taken_for_load(
    simulate_rows: Simulate, signal: str, hit: int
) -> None:
    """sglang#31170, #33625: one session of 800k on a rank, ten of 20k on each of the others.

    A guard that compares resident tokens finds the long session's rank overloaded, though it is idle, and
    sends the session away from its own cache.
    """
    long = growing_session("long", 800_000, 1000, 2)
    others = [
        CallRow(session_id=f"s{i}", turn=0, prompt_tokens=20_000, output_tokens=900, arrival_s=0.5 + i * 1e-3)
        for i in range(30)
    ]
    rows = [
        long[0],
        *others,
        replace(long[1], delay_s=30.0),
    ]
    sets = [
        "router.policy=cache_aware",
        f"router.load_signal={signal}",
        "engine.chunked_prefill_tokens=65536",
    ]
    calls = simulate_rows(rows, dp=4, sets=sets).calls
    row = calls["row"].tolist()
    first, last = row.index(0), row.index(len(rows) - 1)
    placed = np.bincount(calls["rank"][1:-1], minlength=4).tolist()
    if signal == "resident_tokens":
        assert placed == [0, 10, 10, 10]
    assert calls["hit_tokens"][last] == hit
    assert (calls["rank"][last] == calls["rank"][first]) == (hit > 0)
    # Nobody else was running when the session came back.
    assert calls["last_token_ns"][1:-1].max() < calls["sent_ns"][last]
