"""Calls find their rows, and the rows are replayed at the moments seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from v4sim.errors import ConfigError
from v4sim.observe import Seen, join
from v4traces import CallRow, TraceTable

Make = Callable[[Sequence[CallRow]], TraceTable]


@pytest.fixture
def table(make_trace: Make) -> TraceTable:
    def row(session: str, turn: int, prompt: int, **more: Any) -> CallRow:
        link: dict[str, Any] = {}
        if turn:
            link = {"parent_session": session, "parent_turn": turn - 1, "shared_tokens": 100}
        return CallRow(session_id=session, turn=turn, prompt_tokens=prompt, output_tokens=10, **link, **more)

    return make_trace(
        [row("a", 0, 100), row("a", 1, 200), row("a", 2, 300), row("b", 0, 150), row("b", 1, 200)]
    )


def seen(session: str | None, turn: int | None, prompt: int, sent_s: float, **more: Any) -> Seen:
    fields: dict[str, Any] = {"output_tokens": 10, "e2e_s": 2.0, "ttft_s": 1.0, "decode_s": 1.0, **more}
    return Seen(where="x:1", session=session, turn=turn, prompt_tokens=prompt, sent_s=sent_s, **fields)


def full() -> list[Seen]:
    return [
        seen("a", 0, 100, 1000.0),
        seen("a", 1, 200, 1005.0),
        seen("a", 2, 300, 1007.5),
        seen("b", 0, 150, 1001.0),
        seen("b", 1, 200, 1004.0),
    ]


def test_roots_start_when_they_were_sent_and_the_rest_after_what_it_waits_for(table: TraceTable) -> None:
    joined = join(table, full())
    at = joined.table
    keys = [(at.session_names[s], t) for s, t in zip(at.session.tolist(), at.turn.tolist(), strict=True)]
    assert [(call.session, call.turn) for call in joined.seen] == keys
    delays = dict(zip(keys, at.delay_s.tolist(), strict=True))
    arrivals = dict(zip(keys, at.arrival_s.tolist(), strict=True))
    assert (arrivals["a", 0], arrivals["b", 0]) == (0.0, 1.0)
    assert delays["a", 1] == pytest.approx(3.0), "sent at 1005, the turn before ended at 1002"
    assert delays["a", 2] == pytest.approx(0.5)
    assert joined.notes == []


def test_an_answer_that_was_sent_before_the_last_one_ended_waits_for_nothing_more(table: TraceTable) -> None:
    calls = full()
    calls[1] = replace(calls[1], sent_s=1001.0)
    joined = join(table, calls)
    assert joined.table.delay_s.min() == 0.0


def test_without_turns_calls_are_told_apart_by_size_within_their_session(table: TraceTable) -> None:
    joined = join(table, [replace(call, turn=None) for call in full()])
    assert [call.prompt_tokens for call in joined.seen] == joined.table.prompt_tokens.tolist()
    assert joined.unmatched == 0


def test_without_names_only_a_size_that_is_alone_in_the_trace_counts(table: TraceTable) -> None:
    joined = join(table, [replace(call, session="hashed", turn=None) for call in full()])
    assert joined.unmatched == 2, "200 tokens occur in both sessions"
    assert joined.holes == 1, "a's third turn follows one that was not found"
    assert joined.table.prompt_tokens.tolist() == [100, 150]
    assert len(joined.notes) == 2


def test_a_session_is_replayed_up_to_the_first_call_that_was_not_seen(table: TraceTable) -> None:
    calls = full()
    del calls[1]
    joined = join(table, calls)
    assert sorted(joined.table.prompt_tokens.tolist()) == [100, 150, 200]
    assert joined.holes == 1


def test_outputs_are_those_seen(table: TraceTable) -> None:
    calls = [replace(call, output_tokens=7) for call in full()]
    assert set(join(table, calls).table.output_tokens.tolist()) == {7}


def test_nothing_in_common_is_refused(table: TraceTable) -> None:
    with pytest.raises(ConfigError, match="2 fit no row"):
        join(table, [seen("z", 0, 999, 0.0), seen("z", 1, 998, 1.0)])
    with pytest.raises(ConfigError, match="5 have no send time"):
        join(table, [replace(call, sent_s=None) for call in full()])
