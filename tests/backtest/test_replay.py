"""Whole targets under a constant step: every metric has an answer that can be computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from v4sim.backtest.schema import Target

Make = Callable[..., Target]
Metrics = Callable[..., list[dict[str, Any]]]
Predict = Callable[..., dict[str, float | None]]
MS = 10.0  # one step


def test_one_client(target: Make, metrics: Metrics, predict: Predict) -> None:
    """A prompt takes one step and each further token one more: 11 tokens in 110 ms."""
    found = predict(
        target(
            metrics=metrics(
                ("ttft_ms", "p50"),
                ("tpot_ms", "mean"),
                ("decode_tok_s", "p50"),
                ("turn_wall_100tok_ms", "p50"),
                ("e2e_ms", "max"),
                ("verify_step_ms", "mean"),
                ("output_tok_s", "mean"),
                ("total_tok_s_per_gpu", "mean"),
                ("requests_s", "mean"),
            )
        )
    )
    assert found["ttft_ms p50"] == pytest.approx(MS)
    assert found["tpot_ms mean"] == pytest.approx(MS)
    assert found["decode_tok_s p50"] == pytest.approx(100)
    assert found["turn_wall_100tok_ms p50"] == pytest.approx(MS + 100 * MS)
    assert found["e2e_ms max"] == pytest.approx(11 * MS)
    assert found["verify_step_ms mean"] == pytest.approx(MS)
    # Four requests in a row; a late result costs each of the next ones up to one more step.
    seconds = 4 * 11 * MS / 1000
    assert found["output_tok_s mean"] == pytest.approx(44 / seconds, rel=0.1)
    assert found["total_tok_s_per_gpu mean"] == pytest.approx(4 * 1011 / seconds / 4, rel=0.1)
    assert found["requests_s mean"] == pytest.approx(4 / seconds, rel=0.1)


def test_prompts_that_start_together_are_served_in_turn(
    target: Make, metrics: Metrics, predict: Predict
) -> None:
    """Eight prompts of one chunk each: the k-th has its first token after k steps; p50 is the fifth."""
    load = {
        "isl": 8192,
        "osl": 1,
        "concurrency": 8,
        "num_requests": 24,
        "notes": "3 repetitions; the requests of one start together",
    }
    found = predict(
        target(
            workload=load, max_batched_tokens=8192, metrics=metrics(("ttft_ms", "p50"), ("ttft_ms", "p95"))
        )
    )
    assert found["ttft_ms p50"] == pytest.approx(5 * MS)
    assert found["ttft_ms p95"] == pytest.approx(8 * MS)


def test_ranks_that_get_several_prompts_make_the_p95(
    target: Make, metrics: Metrics, predict: Predict
) -> None:
    load = {
        "isl": 8192,
        "osl": 1,
        "concurrency": 8,
        "num_requests": 240,
        "notes": "30 repetitions; the requests of one start together",
    }
    layout = {"attention": "dp8", "tp": 1, "dp": 8, "ep": 1}
    found = predict(
        target(
            num_gpus=8,
            topology=layout,
            workload=load,
            max_batched_tokens=8192,
            metrics=metrics(("ttft_ms", "p50"), ("ttft_ms", "p95")),
        )
    )
    assert found["ttft_ms p50"] == pytest.approx(MS)
    assert found["ttft_ms p95"] / MS == pytest.approx(3)


def test_only_warm_turns_count(target: Make, metrics: Metrics, predict: Predict) -> None:
    """A cold turn of 50,000 tokens takes seven chunks, a warm one is a single step."""
    load = {"kind": "warm_turn", "isl": 50_000, "cached_tokens": 49_920, "new_tokens": 80, "num_requests": 3}
    found = predict(target(workload=load, metrics=metrics(("ttft_ms", "p50"), ("ttft_ms", "max"))))
    assert found["ttft_ms p50"] == pytest.approx(MS)
    assert found["ttft_ms max"] == pytest.approx(MS)


def test_speculation_divides_a_step_over_its_tokens(target: Make, metrics: Metrics, predict: Predict) -> None:
    spec = {"kind": "mtp", "steps": 3, "draft_tokens": 3, "acceptance_length": 2.5}
    found = predict(
        target(spec=spec, workload={"osl": 1001, "num_requests": 8}, metrics=metrics(("tpot_ms", "mean"))),
        seeds=3,
    )
    assert found["tpot_ms mean"] == pytest.approx(MS / 2.5, rel=0.05)


def test_a_ratio_compares_two_sub_points(target: Make, metrics: Metrics, predict: Predict) -> None:
    small, large = {"context_tokens": 4096}, {"context_tokens": 64_000}
    found = predict(
        target(
            workload={"kind": "single", "isl": None, "osl": 1, "num_requests": 1},
            max_batched_tokens=131_072,
            moe_backend="flashinfer_mxfp4",
            metrics=metrics(
                ("ttft_ms", "p50", small), ("ttft_ms", "p50", large), ("ttft_ms_ratio_64k_over_4k", "ratio")
            ),
        ),
        per_prefill_token_s=1e-6,
    )
    assert found["ttft_ms p50 @ 4096"] == pytest.approx(MS + 4.096)
    assert found["ttft_ms_ratio_64k_over_4k ratio"] == pytest.approx((MS + 64.0) / (MS + 4.096))


def test_capacity_needs_no_load(target: Make, metrics: Metrics, predict: Predict) -> None:
    found = predict(
        target(
            workload={"kind": "single", "concurrency": 0, "num_requests": 0},
            metrics=metrics(
                ("kv_tokens_per_replica", "boot log"), ("max_concurrency_1m", "boot log"), ("ttft_ms", "p50")
            ),
        )
    )
    tokens, longest = found["kv_tokens_per_replica boot log"], found["max_concurrency_1m boot log"]
    assert tokens is not None
    assert longest == pytest.approx(tokens / 2**20)
    assert found["ttft_ms p50"] is None


def test_a_metric_without_a_rule_is_left_out_alone(target: Make, metrics: Metrics, predict: Predict) -> None:
    found = predict(target(metrics=metrics(("colour", "p50"), ("ttft_ms", "p50"), ("ttft_ms", "mode"))))
    assert found["colour p50"] is None
    assert found["ttft_ms mode"] is None
    assert found["ttft_ms p50"] == pytest.approx(MS)
