"""Ranks step together: who waits for whom when one of them has a long prompt. Steps by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from v4sim.cost.base import ConstantCost
from v4traces import CallRow

Watch = Callable[..., Any]
MTP = ["speculation.kind=mtp", "speculation.draft_tokens=1", "speculation.acceptance=constant:0"]
STEP_AND_TOKENS = ConstantCost(0.001, 0.0, 1e-6)


def call(name: str, prompt: int, output: int = 1, at_ms: float = 0.0, **more: Any) -> CallRow:
    return CallRow(
        session_id=name, turn=0, prompt_tokens=prompt, output_tokens=output, arrival_s=at_ms / 1e3, **more
    )


# The first call decodes on rank 0 when a prompt of three chunks comes to rank 1 (round robin).
TWO_RANKS = [call("a", 10, 12), call("b", 3 * 1024, 3, at_ms=2.5)]
CHUNKS = ["engine.chunked_prefill_tokens=2048", "engine.overlap=false"]


def test_a_prompt_stops_the_decodes_of_its_own_rank_until_its_last_chunk(watch: Watch) -> None:
    seen = watch(TWO_RANKS, sets=["engine.chunked_prefill_tokens=1024", "engine.overlap=false"])
    assert seen.work()[:8] == [(0, 10), (1, 0), (1, 0), (0, 1024), (0, 1024), (0, 1024), (2, 0), (2, 0)]


def test_without_speculation_another_ranks_decodes_go_on_at_the_pace_of_the_chunks(watch: Watch) -> None:
    seen = watch(TWO_RANKS, sets=CHUNKS, dp=2, cost=STEP_AND_TOKENS)
    during = [step for step in seen.steps if step.work[1][1]]
    assert [step.work for step in during] == [[(1, 0), (0, 1024)]] * 3
    assert {step.kind for step in during} == {"mixed"}
    assert [round(step.end_ms - step.start_ms, 6) for step in during] == [2.024] * 3


def test_with_speculation_all_ranks_stall_until_the_prompt_is_done(watch: Watch) -> None:
    """SGLang: modes never mix with speculation under DP attention (spec_blocks_mixed_dp)."""
    seen = watch(TWO_RANKS, sets=[*CHUNKS, *MTP], dp=2)
    during = [step for step in seen.steps if step.work[1][1]]
    assert [step.work for step in during] == [[(0, 0), (0, 1024)]] * 3
    assert {step.kind for step in during} == {"prefill"}
    idle = watch(TWO_RANKS, sets=[*CHUNKS, *MTP, "engine.spec_blocks_mixed_dp=false"], dp=2)
    assert [step.work for step in idle.steps if step.work[1][1]] == [[(1, 0), (0, 1024)]] * 3


def test_the_stall_shows_as_one_gap_between_tokens(watch: Watch) -> None:
    stalls = {}
    for name, more in (("stalls", []), ("goes on", ["engine.spec_blocks_mixed_dp=false"])):
        seen = watch(TWO_RANKS, sets=[*CHUNKS, *MTP, *more], dp=2)
        seen.result.itl_burst.flush()
        stalls[name] = seen.result.itl_burst.quantile(1.0)
    assert stalls["stalls"] == pytest.approx(4e6, rel=0.05)
    assert stalls["goes on"] == pytest.approx(1e6, rel=0.05)


def test_mixed_chunk_takes_the_decodes_along_and_charges_them_to_the_budget(watch: Watch) -> None:
    """One running call leaves 1023 of 1024 tokens: three whole pages to begin with, then all of them."""
    sets = ["engine.chunked_prefill_tokens=1024", "engine.overlap=false", "engine.mixed_chunk=true"]
    seen = watch(TWO_RANKS, sets=sets)
    assert seen.work()[:8] == [(0, 10), (1, 0), (1, 0), (1, 768), (1, 1023), (1, 1023), (1, 258), (2, 0)]
    assert [step.kind for step in seen.steps[3:7]] == ["mixed"] * 4


@pytest.mark.parametrize("interval", [1, 2])
def test_the_interval_gives_decodes_a_turn_after_every_chunk(watch: Watch, interval: int) -> None:
    sets = [
        "engine.chunked_prefill_tokens=1024",
        "engine.overlap=false",
        f"engine.prefill_decode_interval={interval}",
    ]
    seen = watch(TWO_RANKS, sets=sets)
    decode = [(1, 0)] * interval
    assert seen.work()[3 : 3 + 3 * (1 + interval) - interval] == [
        *[(0, 1024), *decode],
        *[(0, 1024), *decode],
        (0, 1024),
    ]


@pytest.mark.parametrize("blocks", [True, False])
def test_the_interval_is_armed_on_all_ranks_so_that_a_peer_is_not_starved(watch: Watch, blocks: bool) -> None:
    """The prompt's own rank has nothing to decode, yet its next chunk waits: one cadence for all."""
    speculation = MTP if blocks else []
    seen = watch(TWO_RANKS, sets=[*CHUNKS, *speculation, "engine.prefill_decode_interval=1"], dp=2)
    start = next(i for i, step in enumerate(seen.steps) if step.work[1][1])
    decode = [(1, 0), (0, 0)]
    chunk = [(0 if blocks else 1, 0), (0, 1024)]
    assert [step.work for step in seen.steps[start : start + 5]] == [chunk, decode, chunk, decode, chunk]


def test_rounds_in_which_nobody_could_run_cost_no_time(watch: Watch) -> None:
    """The interval on an otherwise idle engine: the loop spins through it."""
    sets = ["engine.chunked_prefill_tokens=1024", "engine.prefill_decode_interval=3"]
    seen = watch([call("b", 3 * 1024, 1)], sets=sets)
    assert seen.ms("first_token_ns") == [3.0]


def test_a_step_lasts_as_long_as_its_heaviest_rank_and_idle_ranks_run_along(watch: Watch) -> None:
    """vllm#51984: idle DP ranks run a dummy step; they cost time and add no tokens."""
    seen = watch([call("a", 100, 4)], sets=["engine.overlap=false"], dp=4, cost=STEP_AND_TOKENS)
    assert [round(step.end_ms - step.start_ms, 6) for step in seen.steps] == [1.1, 1.0, 1.0, 1.0]
    ranks = seen.result.ranks
    assert [rank.busy_ns for rank in ranks] == [4_100_000, 0, 0, 0]
    assert [rank.idle_ns for rank in ranks] == [0, 4_100_000, 4_100_000, 4_100_000]
    assert sum(rank.decode_rows for rank in ranks) == 3


def test_no_rank_steps_while_nobody_has_work(watch: Watch) -> None:
    rows = [call("a", 100, 2), call("b", 100, 2, at_ms=500)]
    seen = watch(rows, sets=["engine.overlap=false"], dp=4)
    assert seen.result.stepped_ns == 4_000_000
    assert seen.result.end_ns == 502_000_000
