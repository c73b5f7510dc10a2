"""How SGLang cuts prompts into steps: chunks, page-rounded budgets, who shares a step. By hand.

Prefill costs 1 µs a token and nothing else, so a step lasts as many microseconds as it has tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from v4sim.cost.base import ConstantCost
from v4traces import CallRow

Watch = Callable[..., Any]
PER_TOKEN = ConstantCost(0.0, 0.0, 1e-6)


def call(name: str, prompt: int, output: int = 1, at_ms: float = 0.0, **more: Any) -> CallRow:
    return CallRow(
        session_id=name, turn=0, prompt_tokens=prompt, output_tokens=output, arrival_s=at_ms / 1e3, **more
    )


def tokens(watched: Any, rank: int = 0) -> list[int]:
    return [prefill for _, prefill in watched.work(rank) if prefill]


def chunk(tokens_per_rank: int, dp: int = 1) -> list[str]:
    return [f"engine.chunked_prefill_tokens={tokens_per_rank * dp}"]


@pytest.mark.parametrize("dp", [1, 2, 4])
def test_the_chunk_flag_is_for_the_whole_dp_group(watch: Watch, dp: int) -> None:
    seen = watch([call("a", 3000)], sets=["engine.chunked_prefill_tokens=4096"], dp=dp, cost=PER_TOKEN)
    expected = {1: [3000], 2: [2048, 952], 4: [1024, 1024, 952]}[dp]
    assert tokens(seen) == expected
    assert seen.ms("first_token_ns") == [3.0]
    assert seen.ms("admit_ns") == [0.0]


def test_a_cold_prompt_is_admitted_with_its_first_chunk_and_answers_after_its_last(watch: Watch) -> None:
    seen = watch([call("a", 2500)], sets=chunk(1024), cost=ConstantCost(0.01, 0.0, 1e-6))
    assert [(s.start_ms, s.end_ms) for s in seen.steps[:3]] == [
        (0, 11.024),
        (11.024, 22.048),
        (22.048, 32.5),
    ]
    assert (seen.ms("admit_ns"), seen.ms("first_token_ns")) == ([0.0], [32.5])


def test_a_short_suffix_is_charged_a_whole_page(watch: Watch) -> None:
    """Budget 1024 = four pages: of five prompts of 30 tokens four share the first step."""
    seen = watch([call(f"s{i}", 30) for i in range(5)], sets=chunk(1024), cost=PER_TOKEN)
    assert tokens(seen) == [120, 30]
    exact = watch([call(f"s{i}", 256) for i in range(4)], sets=chunk(1024), cost=PER_TOKEN)
    assert tokens(exact) == [1024]
    over = watch([call(f"s{i}", 257) for i in range(4)], sets=chunk(1024), cost=PER_TOKEN)
    assert tokens(over) == [514, 514]


def test_the_rest_of_the_budget_goes_to_a_prompt_that_is_cut_to_whole_pages(watch: Watch) -> None:
    # 300 is charged 512, so the second gets 512 of its 2000; later its last 464 (charged 512) share
    # a step with 200 tokens of the third.
    rows = [call("a", 300), call("b", 2000), call("c", 200)]
    seen = watch(rows, sets=chunk(1024), cost=PER_TOKEN)
    assert tokens(seen) == [300 + 512, 1024, 464 + 200]
    assert seen.ms("first_token_ns") == [0.812, 2.5, 2.5]


def test_a_truncated_chunk_ends_on_a_page_even_above_a_hit(watch: Watch) -> None:
    """Hit 256 of 1300 tokens with three pages left: 768 tokens, up to 1024."""
    rows = [
        call("a", 300, 10),
        call("filler", 10, at_ms=50),
        CallRow(
            session_id="b",
            turn=0,
            parent_session="a",
            parent_turn=0,
            shared_tokens=300,
            prompt_tokens=1300,
            output_tokens=1,
            arrival_s=0.05,
        ),
    ]
    seen = watch(rows, sets=chunk(1024))
    assert seen.by_row("hit_tokens")[2] == 256
    assert tokens(seen) == [300, 10 + 768, 276]


def test_nobody_is_cut_to_nothing(watch: Watch) -> None:
    """900 tokens take all four pages: the next prompt waits for the next step, whole."""
    seen = watch([call("a", 900), call("b", 100)], sets=chunk(1024), cost=PER_TOKEN)
    assert tokens(seen) == [900, 100]
    assert seen.by_row("wait_budget_ns") == [0, 0]  # the pass ended before it came to b


def test_one_chunk_is_in_progress_per_rank_and_goes_first(watch: Watch) -> None:
    """The second long prompt starts only in the step where the first one ends."""
    rows = [call("a", 2600), call("b", 2600)]
    seen = watch(rows, sets=chunk(1024), cost=PER_TOKEN)
    assert tokens(seen) == [1024, 1024, 552 + 256, 1024, 1024, 296]
    assert seen.admits == [(0.0, 0), (2.048, 1)]


def test_an_urgent_newcomer_does_not_overtake_the_chunk_in_progress(watch: Watch) -> None:
    rows = [call("a", 2600), call("b", 200, at_ms=0.5, priority=9)]
    seen = watch(rows, sets=[*chunk(1024), "engine.overlap=false"], cost=PER_TOKEN)
    assert tokens(seen) == [1024, 1024, 552 + 200]


def test_without_chunking_the_first_prompt_may_exceed_the_cap_and_runs_alone(watch: Watch) -> None:
    sets = ["engine.chunked_prefill_tokens=-1", "engine.max_prefill_tokens=1024"]
    seen = watch([call("a", 3000), call("b", 10)], sets=sets, cost=PER_TOKEN)
    assert tokens(seen) == [3000, 10]


@pytest.mark.parametrize(("second", "together"), [(200, True), (400, False)])
def test_without_chunking_a_later_prompt_must_stay_below_what_the_cap_leaves(
    watch: Watch, second: int, together: bool
) -> None:
    """500 tokens leave 512 of 1024: 200 (256) fits, 400 (512, not less) does not."""
    sets = ["engine.chunked_prefill_tokens=-1", "engine.max_prefill_tokens=1024"]
    seen = watch([call("a", 500), call("b", second)], sets=sets, cost=PER_TOKEN)
    assert tokens(seen) == ([500 + second] if together else [500, second])


def test_the_cap_bounds_a_pass_of_chunks_as_well(watch: Watch) -> None:
    sets = [*chunk(2048), "engine.max_prefill_tokens=512"]
    seen = watch([call(f"s{i}", 256) for i in range(4)], sets=sets, cost=PER_TOKEN)
    assert tokens(seen) == [512, 512]


def test_prefill_max_requests_counts_the_chunk_in_progress(watch: Watch) -> None:
    rows = [call("a", 1300), *(call(f"s{i}", 30) for i in range(3))]
    seen = watch(rows, sets=[*chunk(1024), "engine.prefill_max_requests=2"], cost=PER_TOKEN)
    assert tokens(seen) == [1024, 276 + 30, 30 + 30]


def test_the_first_that_does_not_fit_stops_the_pass(watch: Watch) -> None:
    """Head of line: the small call behind a blocked one waits although it would fit."""
    rows = [
        call("a", 1500, 400, max_output_tokens=400),
        call("big", 2000, 10, at_ms=5, max_output_tokens=10),
        call("small", 100, 10, at_ms=6, max_output_tokens=10),
    ]
    seen = watch(rows, sets=chunk(8192), kv_tokens=3072)
    a_ends = seen.ms("last_token_ns")[0]
    assert [row for _, row in seen.admits] == [0, 1, 2]
    assert seen.ms("admit_ns")[1] >= a_ends
    assert seen.ms("admit_ns")[2] >= a_ends
    assert seen.by_row("wait_kv_ns")[1] > 300e6
