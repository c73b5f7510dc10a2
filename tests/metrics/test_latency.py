"""Latencies by event class, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from v4sim.metrics.latency import latencies
from v4sim.metrics.outcomes import blocked_entry
from v4traces import CallRow

S = 1_000_000_000


@pytest.fixture
def resumed(make_trace, make_calls, served):
    """A cold call, then one resumed after a tool of 3 s (client: 1 s more), then one still running."""
    table = make_trace(
        [
            CallRow(session_id="a", turn=0, prompt_tokens=10, output_tokens=5),
            CallRow(
                session_id="a",
                turn=1,
                prompt_tokens=20,
                output_tokens=1,
                delay_s=4.0,
                trigger="tool_result",
                tool_latency_s=3.0,
            ),
            CallRow(
                session_id="a", turn=2, prompt_tokens=20, output_tokens=9, delay_s=4.0, trigger="tool_result"
            ),
        ]
    )
    calls = make_calls(
        [
            served(0, 0, 1, 2, 10, output_tokens=5),
            served(1, 14, 14, 14.5, 14.5, output_tokens=1, ready_ns=10 * S, event_class="resume_tool"),
            served(
                2,
                19,
                20,
                21,
                -1e-9,
                output_tokens=9,
                ready_ns=15 * S,
                event_class="resume_tool",
                done="running",
            ),
        ]
    )
    return calls, table


@pytest.fixture
def entry(resumed):
    calls, table = resumed
    return latencies(calls, table, np.ones(len(calls), dtype=bool), None)


def test_ttft_of_each_class(entry):
    ttft = entry["ttft_ms"]
    assert sorted(ttft) == ["all", "cold", "resume_tool", "resume_tool_from_ready", "resume_tool_from_return"]
    assert ttft["all"]["count"] == 3
    assert ttft["cold"]["p50"] == 2000.0
    assert ttft["resume_tool"]["min"] == 500.0
    assert ttft["resume_tool"]["max"] == 2000.0


def test_resume_after_tool_from_the_tools_return_where_it_is_known(entry):
    # The tool returned at 10 + 3 s; the first token came at 14.5 s. The other call has no tool latency.
    assert entry["ttft_ms"]["resume_tool_from_return"] == pytest.approx(
        dict.fromkeys(("mean", "min", "max", "p50", "p90", "p95", "p99"), 1500.0) | {"count": 1}
    )
    assert entry["ttft_ms"]["resume_tool_from_ready"]["min"] == 4500.0


def test_a_tool_that_outlasts_the_delay_returns_when_the_call_is_sent(make_trace, make_calls, served):
    table = make_trace(
        [CallRow(session_id="a", turn=0, prompt_tokens=1, output_tokens=1, tool_latency_s=9.0)]
    )
    calls = make_calls([served(0, 1, 1, 3, 3, ready_ns=0, event_class="resume_tool")])
    ttft = latencies(calls, table, np.ones(1, dtype=bool), None)["ttft_ms"]
    assert ttft["resume_tool_from_return"]["p50"] == 2000.0


def test_tpot_is_per_token_after_the_first_and_only_of_completed_calls(entry):
    # (10 - 2) / 4 s; the one-token call has none, the running one does not count.
    assert entry["tpot_ms"]["count"] == 1
    assert entry["tpot_ms"]["p50"] == 2000.0


def test_whole_call_and_queue(entry):
    assert entry["e2e_ms"]["count"] == 2
    assert entry["e2e_ms"]["max"] == 10_000.0
    assert entry["queue_ms"]["count"] == 3
    assert entry["queue_ms"]["mean"] == pytest.approx(2000 / 3)


def test_host_time_before_the_replica_is_not_queueing(make_trace, make_calls, served):
    table = make_trace([CallRow(session_id="a", turn=0, prompt_tokens=1, output_tokens=1)])
    calls = make_calls([served(0, 1, 4, 5, 5) | {"queued_ns": 3 * S}])
    counted = np.ones(1, dtype=bool)
    assert latencies(calls, table, counted, None)["queue_ms"]["p50"] == 1000.0
    assert blocked_entry(calls, counted) == {"front_end": {"calls": 1, "time_s": 2.0}}


def test_calls_outside_the_mask_do_not_count(resumed):
    calls, table = resumed
    entry = latencies(calls, table, np.array([True, False, False]), None)
    assert entry["ttft_ms"].keys() == {"all", "cold"}
    assert entry["e2e_ms"]["count"] == 1


def test_tpot_of_a_call_is_duration_over_tokens(make_trace, make_calls, served):
    """292.29 tokens/s is 3.42 ms per token, not the 8.72 ms that chunks of several tokens would show."""
    table = make_trace([CallRow(session_id="a", turn=0, prompt_tokens=1, output_tokens=29_230)])
    calls = make_calls([served(0, 0, 0, 1, 101, output_tokens=29_230)])
    tpot = latencies(calls, table, np.ones(1, dtype=bool), None)["tpot_ms"]["p50"]
    assert tpot == pytest.approx(3.42, abs=0.005)
