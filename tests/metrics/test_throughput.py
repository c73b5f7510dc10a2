"""Rates: shares of windows add up, and a peak is never below the mean."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.metrics.throughput import output_tokens_by_bin, throughput
from v4sim.metrics.window import Window

S = 1_000_000_000


def window(start_s: float, end_s: float) -> Window:
    return Window(round(start_s * S), round(end_s * S), "by hand")


def test_one_call_by_hand(make_calls, served):
    # First token at 2 s, then 8 more evenly until 10 s: one a second.
    calls = make_calls([served(0, 0, 1, 2, 10, prompt_tokens=100, output_tokens=9)])
    found = throughput(calls, window(0, 20), gpus=4)
    assert found["output_tokens_per_s"] == pytest.approx(9 / 20)
    assert found["total_tokens_per_s"] == pytest.approx(109 / 20)
    assert found["total_tokens_per_s_per_gpu"] == pytest.approx(109 / 80)
    assert found["requests_per_s"] == 1 / 20
    # The bin from 2 s to 3 s holds the first token and one second of the rest.
    assert found["peak_output_tokens_per_s"] == pytest.approx(2.0)
    assert found["peak_bin_s"] == 1.0


def test_a_window_takes_its_share_of_a_long_answer(make_calls, served):
    calls = make_calls([served(0, 0, 1, 2, 10, prompt_tokens=100, output_tokens=9)])
    found = throughput(calls, window(4, 7), gpus=1)
    assert found["output_tokens_per_s"] == pytest.approx(1.0)
    assert found["total_tokens_per_s"] == pytest.approx(1.0)  # the prompt's token of time lies outside
    assert found["requests_per_s"] == 0.0


def test_tokens_that_come_at_one_moment(make_calls, served):
    calls = make_calls([served(0, 0, 1, 2, 2, output_tokens=5), served(1, 0, 1, 3, 3, output_tokens=1)])
    assert output_tokens_by_bin(calls, window(0, 4), 4).tolist() == [0.0, 0.0, 5.0, 1.0]


def test_calls_that_did_not_complete_produce_nothing(make_calls, served):
    calls = make_calls([served(0, 0, 1, 2, 2, output_tokens=5, done="aborted")])
    assert throughput(calls, window(0, 4), 1)["output_tokens_per_s"] == 0.0


def test_a_window_of_no_length_has_no_rates(make_calls, served):
    assert throughput(make_calls([served(0, 0, 1, 2, 2)]), window(1, 1), 1) == {}


spans = st.lists(
    st.tuples(st.integers(0, 50 * S), st.integers(0, 50 * S), st.integers(1, 4000)), min_size=1, max_size=30
)


@given(spans, st.integers(1, 100 * S), st.integers(1, 100 * S))
def test_adjoining_windows_add_up_and_the_peak_is_not_below_the_mean(
    make_calls, served, calls, first, second
):
    made = make_calls(
        [
            served(0, 0, 0, 0, 0, output_tokens=n)
            | {"first_token_ns": at, "last_token_ns": at + (0 if n == 1 else d)}
            for at, d, n in calls
        ]
    )
    cuts = [0, first, first + second, 300 * S]
    parts = [Window(a, b, "") for a, b in pairwise(cuts)]
    totals = []
    for part in parts:
        rates = throughput(made, part, 1)
        assert rates["peak_output_tokens_per_s"] >= rates["output_tokens_per_s"]
        totals.append(rates["output_tokens_per_s"] * part.length_ns / S)
    assert sum(totals) == pytest.approx(sum(n for _, _, n in calls), rel=1e-9, abs=1e-6)
