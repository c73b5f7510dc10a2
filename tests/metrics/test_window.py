"""Which calls count: the rule of the steady window, by hand."""

from __future__ import annotations

import pytest

from v4sim.errors import ConfigError
from v4sim.metrics.window import full_window, mean_alive, requested_window, steady_window
from v4traces import CallRef, CallRow

S = 1_000_000_000


def row(session: str, turn: int = 0, **rest) -> CallRow:
    return CallRow(session_id=session, turn=turn, prompt_tokens=1, output_tokens=1, **rest)


@pytest.fixture
def ten_sessions(make_trace, make_calls, served):
    """Two alive at any time, each of 10 s: session i starts at 5·i s; the run ends at 55 s."""
    table = make_trace([row(f"s{i}") for i in range(10)])
    calls = make_calls([served(i, 5 * i, 5 * i, 5 * i + 1, 5 * i + 10, session=i) for i in range(10)])
    return calls, table


@pytest.mark.parametrize(
    ("request_text", "start_s", "end_s"),
    [
        ("10:40", 10, 40),
        ("0.1:0.9", 5.5, 49.5),
        ("10%:90%", 5.5, 49.5),
        ("0:100%", 0, 55),
        ("0.2s:0.8s", 0.2, 0.8),
        ("0:1", 0, 55),
        ("40:1000", 40, 55),
    ],
)
def test_a_requested_window(request_text, start_s, end_s):
    window = requested_window(request_text, 55 * S)
    assert (window.start_ns, window.end_ns) == (round(start_s * S), round(end_s * S))


@pytest.mark.parametrize(
    "text", ["", "5", "5:5", "9:3", "-1:3", "a:b", "1:2:3", "nan:4", "0:inf", "10%:120%"]
)
def test_a_window_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="A:B"):
        requested_window(text, 55 * S)


def test_a_window_after_the_run_is_refused():
    with pytest.raises(ConfigError, match="the run ends at 55 s"):
        requested_window("60:70", 55 * S)


def test_closed_loop_while_the_target_is_alive(ten_sessions):
    calls, table = ten_sessions
    # Two are alive from 5 s, when session 1 starts, to 50 s, when session 8 ends; a tenth of that is dropped.
    window = steady_window(calls, table, 55 * S, alive_target=2)
    assert (window.start_ns, window.end_ns) == (round(9.5 * S), 50 * S)
    assert "2 sessions are alive" in window.rule
    assert mean_alive(calls, table, 55 * S, window) == pytest.approx(2.0)


def test_nine_tenths_of_the_target_are_still_a_full_load(make_trace, make_calls, served):
    """Twenty start together; one ends every 5 s from 50 s on, and two of them leave the load full."""
    table = make_trace([row(f"s{i}") for i in range(20)])
    calls = make_calls([served(i, 20, 20, 21, 50 + 5 * i, session=i, ready_ns=0) for i in range(20)])
    window = steady_window(calls, table, 145 * S, alive_target=20)
    assert (window.start_ns, window.end_ns) == (6 * S, 60 * S)


def test_a_full_load_with_few_of_the_calls_falls_back_to_trimmed_time(make_trace, make_calls, served):
    table = make_trace([row("a", turn=turn) for turn in range(12)] + [row("b")])
    calls = make_calls(
        [served(i, 10 * i, 10 * i, 10 * i + 1, 10 * i + 10, turn=i) for i in range(12)]
        + [served(12, 0, 0, 1, 5, session=1)]
    )
    window = steady_window(calls, table, 120 * S, alive_target=2)
    assert (window.start_ns, window.end_ns) == (12 * S, 108 * S)


def test_open_loop_from_the_first_start_to_the_last(ten_sessions):
    calls, table = ten_sessions
    window = steady_window(calls, table, 55 * S)
    assert (window.start_ns, window.end_ns) == (round(4.5 * S), 45 * S)


def test_a_target_never_reached_falls_back_to_trimmed_time(ten_sessions):
    calls, table = ten_sessions
    window = steady_window(calls, table, 55 * S, alive_target=3)
    assert (window.start_ns, window.end_ns) == (round(5.5 * S), round(49.5 * S))
    assert "10 %" in window.rule


def test_sub_agents_are_not_new_sessions(make_trace, make_calls, served):
    """The drain starts at the last root, however late its sub-agent starts."""
    rows = [row(f"s{i}") for i in range(8)]
    rows.append(
        CallRow(
            session_id="sub",
            turn=0,
            prompt_tokens=1,
            output_tokens=1,
            trigger="subagent",
            after=(CallRef("s7", 0),),
        )
    )
    table = make_trace(rows)
    calls = make_calls(
        [served(i, i, i, i + 1, i + 1, session=i) for i in range(8)] + [served(8, 50, 50, 51, 60, session=8)]
    )
    assert steady_window(calls, table, 60 * S).end_ns == 7 * S


def test_the_full_window_holds_the_last_instant(ten_sessions):
    calls, _ = ten_sessions
    window = full_window(calls, 55 * S)
    assert window.holds(calls["last_token_ns"]).all()
    assert not window.holds(calls["last_token_ns"] * 0 - 1).any()


def test_shares_of_spans(make_calls, served):
    calls = make_calls([served(0, 0, 0, 0, 10), served(1, 0, 0, 20, 20), served(2, 0, 0, 8, 12)])
    window = requested_window("5:10", 100 * S)
    shares = window.share_of(calls["first_token_ns"], calls["last_token_ns"])
    # 5 of 10 s; an instant outside; 2 of 4 s.
    assert shares.tolist() == [0.5, 0.0, 0.5]
