"""What a call waited for, from recorded times."""

from __future__ import annotations

from v4traces import CallRef
from v4traces.importers.waits import SLACK_S, OpenCalls, Wait

A, B, C, D = (CallRef("s", turn) for turn in range(4))


def test_the_first_call_waits_for_the_start_of_the_session():
    assert OpenCalls().wait(3.0) == Wait((), 0.0)


def test_a_call_waits_for_the_one_that_ended_before():
    calls = OpenCalls()
    calls.add(A, 5.0)
    assert calls.wait(9.0) == Wait((A,), 5.0)
    calls.add(B, 12.0)
    assert calls.wait(13.0) == Wait((B,), 12.0)


def test_a_join_waits_for_all_that_ended_and_counts_from_the_last():
    calls = OpenCalls()
    for call, ended in ((A, 5.0), (B, 8.0), (C, 7.0)):
        calls.add(call, ended)
    assert calls.wait(9.0) == Wait((A, B, C), 8.0)


def test_a_running_call_is_waited_for_later_not_now():
    calls = OpenCalls()
    calls.add(A, 2.0)
    assert calls.wait(3.0) == Wait((A,), 2.0)
    calls.add(B, 20.0)
    assert calls.wait(6.0) == Wait((A,), 2.0)
    calls.add(C, 8.0)
    assert calls.wait(22.0) == Wait((B, C), 20.0)


def test_rounded_clocks_do_not_make_an_overlap():
    calls = OpenCalls()
    calls.add(A, 10.0)
    assert calls.wait(10.0 - SLACK_S).calls == (A,)
    calls.add(B, 10.0)
    assert calls.wait(10.0 - SLACK_S - 0.1).calls == (A,)
