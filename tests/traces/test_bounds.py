"""Hit bounds from parent links against a search through the content itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4traces import CallRef, CallRow, TraceMetadata, TraceWriter
from v4traces.bounds import lost_tokens, previous_in_session, scoped_bound_tokens
from v4traces.importers.prefix import PrefixFinder

_CALLS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 9), st.integers(0, 15), st.lists(st.integers(0, 2), max_size=5)
    ),
    min_size=1,
    max_size=25,
)


def _common(one, two):
    same = 0
    for a, b in zip(one, two, strict=False):
        if a != b:
            break
        same += 1
    return same


def _trace(recipe):
    """Prompts made of tokens (blocks of one token), and their rows by the prefix finder."""
    finder, prompts, rows, turns = PrefixFinder(), [], [], [0] * 4
    for session, source, keep, tail in recipe:
        prompt = [7, *(prompts[source % len(prompts)][1:keep] if prompts else []), *tail]
        match = finder.add(np.array(prompt, dtype=np.int64), len(prompts))
        parent = rows[match.call] if match.call >= 0 else None
        rows.append(
            CallRow(
                session_id=f"s{session}",
                turn=turns[session],
                prompt_tokens=len(prompt),
                output_tokens=1,
                parent_session=parent and parent.session_id,
                parent_turn=parent and parent.turn,
                shared_tokens=match.num_blocks,
            )
        )
        turns[session] += 1
        prompts.append(prompt)
    return prompts, rows


@given(recipe=_CALLS)
def test_bounds_are_the_longest_prefixes_of_the_content(tmp_path_factory, recipe):
    prompts, rows = _trace(recipe)
    with TraceWriter(tmp_path_factory.mktemp("t") / "t", TraceMetadata("t", "synthetic")) as writer:
        writer.append(rows)
    table = writer.table
    everywhere = [max((_common(p, q) for q in prompts[:i]), default=0) for i, p in enumerate(prompts)]
    own = [
        max((_common(p, prompts[j]) for j in range(i) if rows[j].session_id == rows[i].session_id), default=0)
        for i, p in enumerate(prompts)
    ]
    assert table.bound_tokens().tolist() == everywhere
    assert scoped_bound_tokens(table, table.session).tolist() == own
    pairs = np.array([recipe[i][0] // 2 for i in range(len(recipe))], dtype=np.int32)
    wider = [
        max((_common(p, prompts[j]) for j in range(i) if pairs[j] == pairs[i]), default=0)
        for i, p in enumerate(prompts)
    ]
    assert scoped_bound_tokens(table, pairs).tolist() == wider


@given(st.lists(st.tuples(st.sampled_from([None, "g", "h"]), st.integers(0, 50)), min_size=1, max_size=20))
def test_a_group_shares_the_shorter_of_its_prefixes(tmp_path_factory, recipe):
    rows = [
        CallRow(
            session_id=f"s{i}",
            turn=0,
            prompt_tokens=60,
            output_tokens=1,
            group_id=group,
            group_tokens=None if group is None else tokens,
        )
        for i, (group, tokens) in enumerate(recipe)
    ]
    with TraceWriter(tmp_path_factory.mktemp("g") / "t", TraceMetadata("t", "synthetic")) as writer:
        writer.append(rows)
    expected = [
        max((min(tokens, other) for name, other in recipe[:i] if name == group), default=0) if group else 0
        for i, (group, tokens) in enumerate(recipe)
    ]
    assert writer.table.bound_tokens().tolist() == expected


def test_output_is_not_in_the_bound(write):
    rows = [
        CallRow(session_id="a", turn=0, prompt_tokens=100, output_tokens=50),
        CallRow(
            session_id="a",
            turn=1,
            prompt_tokens=200,
            output_tokens=1,
            parent_session="a",
            parent_turn=0,
            shared_tokens=100,
            shared_output_tokens=50,
        ),
    ]
    assert write(rows).bound_tokens().tolist() == [0, 100]


def test_lost_tokens_are_those_of_the_previous_prompt_that_fit_and_are_not_shared():
    class Table:
        prompt_tokens = np.array([100, 150, 120, 400])

    previous, bound = np.array([-1, 0, 1, 2]), np.array([0, 100, 90, 120])
    assert lost_tokens(Table(), bound, previous).tolist() == [0, 0, 30, 0]


def test_previous_is_the_row_before_of_the_same_session(write):
    order = ["a", "b", "a", "c", "b", "a"]
    seen: dict[str, int] = {}
    rows = []
    for name in order:
        rows.append(CallRow(session_id=name, turn=seen.get(name, 0), prompt_tokens=1, output_tokens=1))
        seen[name] = seen.get(name, 0) + 1
    table = write(rows)
    assert previous_in_session(table).tolist() == [-1, -1, 0, -1, 1, 2]
    assert table.is_first_of_session().tolist() == [True, True, False, True, False, False]


@pytest.fixture
def family():
    """Root r starts agent x, which starts agent y; root q is alone; z extends q as a session of its own."""
    return [
        CallRow(session_id="r", turn=0, prompt_tokens=9, output_tokens=1),
        CallRow(session_id="q", turn=0, prompt_tokens=9, output_tokens=1),
        CallRow(
            session_id="x",
            turn=0,
            prompt_tokens=9,
            output_tokens=1,
            trigger="subagent",
            after=(CallRef("r", 0),),
        ),
        CallRow(
            session_id="y",
            turn=0,
            prompt_tokens=9,
            output_tokens=1,
            trigger="subagent",
            after=(CallRef("x", 0),),
        ),
        CallRow(session_id="y", turn=1, prompt_tokens=9, output_tokens=1, trigger="tool_result"),
        CallRow(
            session_id="z",
            turn=0,
            prompt_tokens=9,
            output_tokens=1,
            trigger="resume",
            parent_session="q",
            parent_turn=0,
            shared_tokens=9,
        ),
        CallRow(
            session_id="r", turn=1, prompt_tokens=9, output_tokens=1, after=(CallRef("r", 0), CallRef("y", 1))
        ),
    ]


def test_a_task_is_a_root_with_all_its_sub_agents(write, family):
    assert write(family).task_of_row().tolist() == [0, 1, 0, 0, 0, 2, 0]


def test_a_sub_agent_without_a_starting_call_belongs_to_its_parent(write):
    rows = [
        CallRow(session_id="r", turn=0, prompt_tokens=9, output_tokens=1),
        CallRow(
            session_id="x",
            turn=0,
            prompt_tokens=9,
            output_tokens=1,
            trigger="subagent",
            parent_session="r",
            parent_turn=0,
            shared_tokens=3,
        ),
    ]
    assert write(rows).task_of_row().tolist() == [0, 0]


def test_named_tasks_are_taken_as_they_are(write):
    rows = [
        CallRow(session_id=name, turn=0, prompt_tokens=9, output_tokens=1, task_id=task)
        for name, task in zip("abcd", ("t", None, "t", "u"), strict=True)
    ]
    assert write(rows).task_of_row().tolist() == [0, 1, 0, 2]
