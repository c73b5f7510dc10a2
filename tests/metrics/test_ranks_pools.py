"""Load of ranks and use of pools, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from v4sim.metrics.pools import pool_entries, series_entry, time_mean
from v4sim.metrics.ranks import attended_tokens, rank_entries
from v4sim.metrics.window import Window

S = 1_000_000_000
WHOLE = Window(0, 100 * S, "whole")


def test_attended_tokens_of_prefill_and_decode(make_calls, served):
    calls = make_calls(
        [
            # 4 new tokens after 96: 4·96 + 4²/2. Then 10 steps over 100 to 111 tokens, 105.5 on average.
            served(0, 0, 0, 1, 2, prompt_tokens=100, computed_tokens=4, output_tokens=11),
            # Verify steps read the context once whatever they yield.
            served(1, 0, 0, 1, 2, prompt_tokens=100, computed_tokens=0, output_tokens=11, verify_steps=5),
            {"row": 2, "prompt_tokens": 10, "computed_tokens": 10, "done": "queued"},
        ]
    )
    assert attended_tokens(calls).tolist() == [392 + 1055, 527.5, 0]


def test_skewed_ranks_as_times_of_the_mean(make_calls, make_result, make_totals, served):
    """Loads of 14.18, 5.66, 6.37 and 8.07 are 1.65 times their mean at the busiest rank, 60.4 % used."""
    loads = (1418, 566, 637, 807)
    calls = make_calls(
        [
            served(
                i, 0, 0, 1, 2, rank=i, prompt_tokens=load, output_tokens=2, verify_steps=1, computed_tokens=0
            )
            for i, load in enumerate(loads)
        ]
    )
    totals = make_totals(10.0, busy_s=[[4.0] * 4], decode=[{"index_scan": 3.0, "moe": 1.0}])
    found = rank_entries(calls, make_result(ranks=4), totals, WHOLE)
    attention = [rank["attention_s"] for rank in found]
    assert max(attention) == 3.0
    assert max(attention) / np.mean(attention) == pytest.approx(1.65, abs=0.01)
    assert np.mean(attention) / max(attention) == pytest.approx(0.604, abs=0.001)
    assert [rank["utilisation"] for rank in found] == [0.4] * 4


def test_tokens_of_a_rank_are_those_of_the_window(make_calls, make_result, make_totals, served):
    calls = make_calls(
        [
            served(0, 0, 0, 2, 12, output_tokens=100, computed_tokens=50, recomputed_tokens=8),
            served(1, 5, 5, 20, 30, output_tokens=100, computed_tokens=7),
        ]
    )
    window = Window(0, 7 * S, "")
    found = rank_entries(calls, make_result(), make_totals(7.0, busy_s=[[3.5]]), window)[0]
    assert (found["decode_tokens"], found["prefill_tokens"], found["busy_s"]) == (50, 58, 3.5)


def test_a_mean_is_over_time_and_before_the_first_sample_nothing_is_held():
    times, values = np.array([2, 4, 4, 8]) * S, np.array([10, 99, 20, 40])
    # 10 for 2 s, 20 for 4 s, 40 for 2 s, over 10 s; the sample overwritten at once counts for nothing.
    assert time_mean(times, values, Window(0, 10 * S, "")) == 18.0
    assert time_mean(times, values, Window(3 * S, 5 * S, "")) == 15.0
    assert time_mean(times, values, Window(9 * S, 10 * S, "")) == 40.0
    assert time_mean(times, values, Window(0, 1 * S, "")) == 0.0
    assert time_mean(times, values, Window(5, 5, "")) is None
    assert time_mean(times[:0], values[:0], WHOLE) is None


def test_pools_name_capacity_peak_and_mean(make_result):
    result = make_result(ranks=2, series={"t_ns": np.array([0]), "kv_used": np.array([[100, 300]])})
    found = pool_entries(result, WHOLE)
    assert [(pool["name"], pool["rank"], pool["capacity_tokens"], pool["peak_tokens"]) for pool in found] == [
        ("kv", 0, 1000, 500),
        ("kv", 1, 1000, 500),
    ]
    assert [pool["mean_tokens"] for pool in found] == [100.0, 300.0]
    assert "mean_tokens" not in pool_entries(make_result(), WHOLE)[0]


def test_series_are_by_rank_and_bounded(make_result):
    samples = np.arange(5000)
    result = make_result(
        ranks=2, series={"t_ns": samples * S, "kv_used": np.stack([samples, samples * 2], axis=1)}
    )
    found = series_entry(result)
    assert len(found["t_s"]) == 1024
    assert found["kv_used"].shape == (2, 1024)
    assert (found["t_s"][0], found["t_s"][-1]) == (0.0, 4999.0)
    assert found["kv_used"][1, -1] == 9998
