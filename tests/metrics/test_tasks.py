"""Tasks: what belongs to one, when it is finished, what it used."""

from __future__ import annotations

from itertools import pairwise

import pytest

from v4sim.metrics.tasks import Tasks, tasks_entry, work_shares
from v4sim.metrics.window import Window
from v4traces import CallRef, CallRow

S = 1_000_000_000
WHOLE = Window(0, 100 * S, "whole")


def row(session: str, turn: int, **rest) -> CallRow:
    return CallRow(session_id=session, turn=turn, prompt_tokens=10, output_tokens=10, **rest)


@pytest.fixture
def run(make_trace, make_calls, served):
    """Session `a` with a sub-agent, twice (the second time unfinished), and session `b`."""
    table = make_trace(
        [
            row("a", 0),
            row("sub", 0, trigger="subagent", after=(CallRef("a", 0),)),
            row("a", 1, after=(CallRef("sub", 0),), success=True),
            row("b", 0, success=False),
        ]
    )
    calls = make_calls(
        [
            served(0, 0, 0, 1, 5, session=0, gpu_share_ns=1 * S, kv_peak_tokens=100),
            served(1, 5, 5, 6, 8, session=1, gpu_share_ns=2 * S, kv_peak_tokens=40),
            served(2, 10, 10, 11, 20, session=0, gpu_share_ns=3 * S, kv_peak_tokens=150),
            served(3, 2, 2, 3, 30, session=2, gpu_share_ns=4 * S, kv_peak_tokens=50),
            served(0, 30, 30, 31, 35, session=0, instance=1, gpu_share_ns=S, kv_peak_tokens=100),
        ]
    )
    return Tasks.of(calls, table), calls


@pytest.fixture
def tasks(run):
    return run[0]


def test_a_root_session_with_its_sub_agents_is_one_task_and_each_copy_another(tasks):
    assert tasks.of_call.tolist() == [0, 0, 0, 1, 2]
    assert tasks.calls.tolist() == [3, 1, 1]
    assert tasks.sessions.tolist() == [2, 1, 1]


def test_a_task_is_finished_when_all_its_calls_are(tasks):
    assert tasks.finished.tolist() == [True, True, False]
    assert (tasks.start_ns // S).tolist() == [0, 2, 30]
    assert (tasks.end_ns // S).tolist() == [20, 30, 35]


def test_what_it_used(tasks):
    assert (tasks.gpu_share_ns // S).tolist() == [6, 4, 1]
    # The peaks of its two sessions: 150 and 40.
    assert tasks.kv_peak_tokens.tolist() == [190, 50, 100]


def test_the_entry(run):
    entry = tasks_entry(*run, WHOLE, gpus_per_replica=4, kv_bytes_per_token=7000.0)
    assert entry["count"] == 3
    assert entry["completed"] == entry["equivalent"] == 2
    assert entry["per_hour"] == pytest.approx(2 * 36)
    assert entry["gpu_seconds_per_task"] == pytest.approx((6 + 4) * 4 / 2)
    assert entry["cache_bytes_per_task"] == pytest.approx(120 * 7000)
    assert entry["calls_per_task"] == 2.0
    assert entry["e2e_s"]["min"] == 20.0
    assert entry["e2e_s"]["max"] == 28.0
    assert entry["successful"] == 1


def test_a_task_is_completed_in_the_window_where_it_ends(run):
    entry = tasks_entry(*run, Window(25 * S, 40 * S, ""), 1, None)
    assert entry["completed"] == 1
    assert entry["count"] == 2
    assert entry["successful"] == 0
    assert "cache_bytes_per_task" not in entry


def test_a_task_counts_by_the_part_of_its_gpu_time_in_the_window(run):
    # Of a: calls of 1 s (all inside), 2 s (all), 3 s (2 of its 10 s inside). Of b: 10 of 28 s.
    entry = tasks_entry(*run, Window(0, 12 * S, ""), 1, None)
    of_a, of_b = (1 + 2 + 3 * 0.2) / 6, 10 / 28
    assert entry["completed"] == 0
    assert entry["equivalent"] == pytest.approx(of_a + of_b)
    assert entry["gpu_seconds_per_task"] == pytest.approx((6 * of_a + 4 * of_b) / (of_a + of_b))
    assert "successful" not in entry


def test_parts_of_tasks_over_adjoining_windows_add_up(run):
    cuts = [0, 7, 11, 25, 100]
    parts = [work_shares(*run, Window(a * S, b * S, "")) for a, b in pairwise(cuts)]
    assert sum(parts).tolist() == pytest.approx([1.0, 1.0, 0.0])


def test_no_task_did_anything_no_figure_per_task(run):
    entry = tasks_entry(*run, Window(40 * S, 50 * S, ""), 1, 1.0)
    assert entry["completed"] == entry["equivalent"] == 0
    assert entry["e2e_s"] == {"count": 0}
    assert not {"gpu_seconds_per_task", "successful", "cache_bytes_per_task"} & entry.keys()


def test_success_is_absent_unless_every_ended_task_states_it(make_trace, make_calls, served):
    table = make_trace([row("a", 0, success=True), row("b", 0)])
    calls = make_calls([served(0, 0, 0, 1, 2, session=0), served(1, 0, 0, 1, 2, session=1)])
    assert "successful" not in tasks_entry(Tasks.of(calls, table), calls, WHOLE, 1, None)


def test_the_last_stated_success_of_a_task_stands(make_trace, make_calls, served):
    table = make_trace([row("a", 0, success=False), row("a", 1, success=True), row("a", 2)])
    calls = make_calls([served(i, i, i, i + 0.5, i + 1) for i in range(3)])
    assert Tasks.of(calls, table).success.tolist() == [1]


def test_task_ids_of_the_trace_join_sessions(make_trace, make_calls, served):
    table = make_trace([row("a", 0, task_id="t"), row("b", 0, task_id="t")])
    calls = make_calls([served(0, 0, 0, 1, 2, session=0), served(1, 0, 0, 1, 9, session=1)])
    assert Tasks.of(calls, table).of_call.tolist() == [0, 0]
