"""Statistics on traces small enough to count by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from v4traces import CallRef, CallRow
from v4traces.stats import Distribution, branch_depth, session_times, trace_stats


def _extend(session, turn, parent, prompt, shared, **fields):
    return CallRow(
        session_id=session,
        turn=turn,
        prompt_tokens=prompt,
        output_tokens=10,
        parent_session=parent[0],
        parent_turn=parent[1],
        shared_tokens=shared,
        **fields,
    )


@pytest.fixture
def table(write):
    """A root of four calls that compacts at the end, with one joined sub-agent."""
    return write(
        [
            CallRow(
                session_id="r", turn=0, prompt_tokens=1000, output_tokens=10, observed_e2e_s=4.0, model="m"
            ),
            CallRow(
                session_id="x",
                turn=0,
                prompt_tokens=500,
                output_tokens=10,
                trigger="subagent",
                after=(CallRef("r", 0),),
                delay_s=1.0,
                observed_e2e_s=20.0,
            ),
            _extend(
                "r",
                1,
                ("r", 0),
                1500,
                1000,
                trigger="tool_result",
                after=(CallRef("r", 0), CallRef("x", 0)),
                delay_s=5.0,
                observed_e2e_s=2.0,
            ),
            _extend("r", 2, ("r", 1), 2000, 1000, trigger="user", delay_s=30.0, observed_e2e_s=1.0),
            _extend("r", 3, ("r", 0), 900, 100, trigger="resume", delay_s=2.0),
        ]
    )


def test_counts(table):
    stats = trace_stats(table)
    assert (stats.calls, stats.sessions, stats.sub_agents, stats.tasks, stats.joins) == (5, 2, 1, 1, 1)
    assert (stats.prompt_tokens, stats.output_tokens) == (5900, 50)
    assert stats.triggers == {"user": 2, "tool_result": 1, "subagent": 1, "resume": 1}
    assert stats.models == {"m": 1}
    assert stats.continuing_sessions == 0


def test_hit_bounds_count_the_cold_first_calls(table):
    bounds = trace_stats(table).hit_bounds
    assert bounds.own_session == bounds.own_task == bounds.whole_trace == 2100 / 5900
    # Of 3,800 missing tokens the one call in fifty (at least one) that misses most has 1,000.
    assert bounds.missed_by_top_2_percent == 1000 / 3800


def test_divergence_and_compaction_are_shares_of_the_calls_that_have_one_before(table):
    stats = trace_stats(table)
    # Turn 2 repeats 1,000 of 1,500 tokens, turn 3 100 of the 900 it has room for.
    assert stats.diverging_share == 2 / 3
    assert stats.compacted_share == 1 / 3


def test_times_follow_waits_delays_and_observed_durations(table):
    begins, ends = session_times(table)
    assert begins.tolist() == [0.0, 5.0, 30.0, 62.0, 65.0]
    assert ends.tolist() == [4.0, 25.0, 32.0, 63.0, 65.0]
    life = trace_stats(table).distributions["session_life_s"]
    assert (life.min, life.max) == (20.0, 65.0)


def test_lives_are_of_sessions_in_the_order_of_their_codes(write):
    rows = [
        CallRow(session_id="a", turn=0, prompt_tokens=9, output_tokens=1, arrival_s=10.0, observed_e2e_s=1.0),
        CallRow(session_id="b", turn=0, prompt_tokens=9, output_tokens=1, arrival_s=11.0, observed_e2e_s=9.0),
        CallRow(session_id="a", turn=1, prompt_tokens=9, output_tokens=1, delay_s=3.0, observed_e2e_s=2.0),
    ]
    life = trace_stats(write(rows)).distributions["session_life_s"]
    assert (life.min, life.max) == (6.0, 9.0)


def test_branch_depth_counts_departures_from_the_newest_end(table):
    # Turn 2 extends turn 1 but drops its last 500 tokens; turn 3 goes back into turn 0.
    assert branch_depth(table).tolist() == [0, 0, 0, 1, 1]


def test_a_second_continuation_of_one_call_is_a_branch(write):
    rows = [
        CallRow(session_id="a", turn=0, prompt_tokens=100, output_tokens=1),
        _extend("b", 0, ("a", 0), 200, 100),
        _extend("c", 0, ("a", 0), 200, 100),
        _extend("c", 1, ("c", 0), 300, 200),
        _extend("d", 0, ("c", 1), 300, 150),
    ]
    assert branch_depth(write(rows)).tolist() == [0, 0, 1, 1, 2]


def test_a_session_that_begins_with_anothers_prompt_continues_it(write):
    rows = [
        CallRow(session_id="a", turn=0, prompt_tokens=100, output_tokens=1),
        _extend("b", 0, ("a", 0), 150, 100),
        _extend("c", 0, ("a", 0), 900, 100),
    ]
    assert trace_stats(write(rows)).continuing_sessions == 1


def test_first_calls_have_no_pause(table):
    delays = {k: v.count for k, v in trace_stats(table).distributions.items() if k.startswith("delay_s")}
    assert delays == {
        "delay_s_user": 1,
        "delay_s_tool_result": 1,
        "delay_s_subagent": 0,
        "delay_s_resume": 1,
        "delay_s_retry": 0,
    }


def test_nothing_to_count_is_null_not_nan(table):
    nothing = trace_stats(table).distributions["tool_latency_s"]
    assert nothing == Distribution(0, None, None, None, {})
    json.dumps(trace_stats(table).to_dict(), allow_nan=False)


def test_quantiles_are_those_of_numpy():
    values = np.arange(101.0)
    assert Distribution.of(values).quantiles["p90"] == 90.0
    assert Distribution.of(values).mean == 50.0
