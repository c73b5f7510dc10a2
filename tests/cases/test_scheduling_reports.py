"""Public reports about schedulers, graphs and drafts, with their own numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from v4sim.cost.base import ConstantCost
from v4sim.cost.load import RankLoad
from v4sim.results import RunResult
from v4traces import CallRow

Simulate = Callable[..., RunResult]
VLLM = ["engine.kind=vllm", "engine.async_scheduling=false"]


def call(name: str, prompt: int, output: int = 1, at_s: float = 0.0) -> CallRow:
    return CallRow(session_id=name, turn=0, prompt_tokens=prompt, output_tokens=output, arrival_s=at_s)


def test_a_prompt_of_130k_at_512_a_step_holds_everyone_up_for_254_steps(simulate_rows: Simulate) -> None:
    """vllm#10235, vllm#21495, sglang#10063."""
    rows = [call("long", 130_000), call("short", 10)]
    together = "engine.cpu_cached_token_us=0"  # the front end would hold the short one back, too
    sets = [*VLLM, together, "engine.max_batched_tokens=512"]
    steps = simulate_rows(rows, sets=sets).calls["first_token_ns"] // 1_000_000
    assert steps.tolist() == [254, 254]
    shared = simulate_rows(rows, sets=[*sets, "engine.long_prefill_token_threshold=256"])
    steps = shared.calls["first_token_ns"] // 1_000_000
    assert steps[1] == 1
    assert steps[0] == 255  # alone again, it takes the whole budget
    sglang = simulate_rows(rows, sets=[together, "engine.chunked_prefill_tokens=512", "engine.overlap=false"])
    assert (sglang.calls["first_token_ns"] // 1_000_000).tolist() == [254, 255]


@pytest.mark.parametrize(("budget", "first_tokens_s"), [(2048, [2, 2]), (1024, [1, 2])])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_two_prompts_of_1024_at_one_second_each_batched_or_in_turn(
    simulate_rows: Simulate, engine: str, budget: int, first_tokens_s: list[int]
) -> None:
    """vllm#33743: batched both see their first token after 2 s, in turn after 1 s and 2 s. Exact."""
    sets = {
        "vllm": [*VLLM, f"engine.max_batched_tokens={budget}"],
        "sglang": ["engine.overlap=false", f"engine.chunked_prefill_tokens={budget}"],
    }[engine]
    saturated = ConstantCost(0.0, 0.0, 1 / 1024)
    result = simulate_rows([call("a", 1024), call("b", 1024)], sets=sets, cost=saturated)
    assert result.calls["first_token_ns"].tolist() == [s * 1_000_000_000 for s in first_tokens_s]


def test_all_accepted_drafts_of_five_give_six_tokens_a_step(simulate_rows: Simulate) -> None:
    """dynamo#13517: the number of drafts was parsed, validated and ignored; here it divides the steps."""
    rows = [call("a", 10, 1 + 60)]
    steps = {}
    for drafts in (1, 2, 3, 5):
        sets = [
            "speculation.kind=dspark",
            f"speculation.draft_tokens={drafts}",
            "speculation.acceptance=constant:1.0",
        ]
        result = simulate_rows(rows, sets=sets)
        steps[drafts] = int(result.calls["verify_steps"][0])
        assert result.calls["drafts_accepted"][0] == 60 - steps[drafts]
        assert result.calls["last_token_ns"][0] == (1 + steps[drafts]) * 1_000_000
        result.itl_burst.flush()
        result.itl_divided.flush()
        # A burst per step; divided over its tokens the same time is kept.
        assert result.itl_burst.total_ns == steps[drafts] * 1_000_000
        assert result.itl_divided.mean == pytest.approx(1e6 / (1 + drafts), rel=1e-5)
    assert steps == {1: 30, 2: 20, 3: 15, 5: 10}
    assert simulate_rows(rows).calls["last_token_ns"][0] == 61_000_000


def test_time_between_bursts_is_not_time_between_tokens(simulate_rows: Simulate) -> None:
    """sglang#12064, #33193: 8.72 ms per chunk at 292.29 tokens/s, which is 3.42 ms per token.

    2.55 tokens a step is what V4-Pro's MTP accepts with five drafts; a mean over n steps is off by less
    than 4 · 2.5/√n tokens.
    """
    sets = ["speculation.kind=mtp", "speculation.draft_tokens=5", "speculation.acceptance=v4-pro-mtp"]
    tokens = 40_000
    result = simulate_rows([call("a", 10, tokens)], sets=sets, cost=ConstantCost(0.00872))
    calls = result.calls
    decoding_ns = int(calls["last_token_ns"][0] - calls["first_token_ns"][0])
    per_step = (tokens - 1) / int(calls["verify_steps"][0])
    assert per_step == pytest.approx(2.55, abs=4 * 2.5 / np.sqrt(calls["verify_steps"][0]))
    result.itl_burst.flush()
    result.itl_divided.flush()
    assert result.itl_burst.mean / 1e6 == pytest.approx(8.72)
    assert result.itl_divided.mean / 1e6 == pytest.approx(8.72 / per_step, rel=1e-6)
    assert result.itl_divided.mean / 1e6 == pytest.approx(3.42, rel=0.03)
    assert (tokens - 1) / (decoding_ns / 1e9) == pytest.approx(292.29, rel=0.03)
    # Sums are preserved: what a client waits is the same in both forms.
    assert result.itl_burst.total_ns == decoding_ns
    assert result.itl_divided.mean * result.itl_divided.count == pytest.approx(decoding_ns, rel=1e-6)


def test_a_step_jumps_where_the_captured_graphs_end(
    small_deployment: Callable[..., Any], simulate_rows: Simulate
) -> None:
    """vllm-ascend#14440: past 256 running sequences every launch is paid one by one, in every step.

    The report saw a third to a quarter of the throughput on its hardware. Here the limit is an input and
    the jump comes from the profile's launch cost: throughput falls although a sequence was added.
    """
    from v4sim.config import resolve
    from v4sim.cost import compile_cost, load_profile
    from v4sim.model import spec

    sets = [*VLLM, "engine.cuda_graph_max_bs=256", "engine.max_num_seqs=512"]
    cost = compile_cost(load_profile("b200"), resolve(small_deployment(sets)), spec("v4-flash"))

    def tokens_per_s(rows: int) -> float:
        return rows / sum(cost.step([RankLoad(rows, rows * 2048, 2048)], 1, "decode"))

    assert tokens_per_s(255) < tokens_per_s(256)
    assert tokens_per_s(257) < 0.75 * tokens_per_s(256)
    assert tokens_per_s(258) == pytest.approx(tokens_per_s(257), rel=0.02)

    # The same in a whole run: one call more in the batch, and all are slower.
    def gap_ns(calls: int) -> float:
        rows = [call(f"s{i}", 10, 30) for i in range(calls)]
        found = simulate_rows(rows, sets=sets, slots=512, cost=cost).calls
        return float(np.mean(found["last_token_ns"] - found["first_token_ns"])) / 29

    assert gap_ns(256) == pytest.approx(gap_ns(255), rel=0.02)
    assert gap_ns(257) > 1.3 * gap_ns(256)


def test_a_slow_predictor_changes_no_result(simulate_rows: Simulate) -> None:
    """sglang#39042, #39067: simulated time knows nothing of the wall clock."""

    class Sleepy(ConstantCost):
        asked = 0

        def step(self, loads: Sequence[RankLoad], width: int, kind: str) -> list[int]:
            type(self).asked += 1
            time.sleep(0.05)
            return super().step(loads, width, kind)

    rows = [call("a", 100, 4), call("b", 300, 3, at_s=0.0015)]
    calm = simulate_rows(rows, cost=ConstantCost(0.001, 0.0001), stepwise=True)
    slow = simulate_rows(rows, cost=Sleepy(0.001, 0.0001), stepwise=True)
    assert Sleepy.asked == calm.num_steps > 3
    for name, column in calm.calls.items():
        assert np.array_equal(column, slow.calls[name]), name
    assert slow.end_ns == calm.end_ns
