"""Each law of a trace: a file that breaks it is refused with row, column and the way out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4traces import TraceError, TraceWriter, read_table
from v4traces.laws import _LAWS, broken_laws
from v4traces.read import load

NAN, INF = float("nan"), float("inf")
PARENT = {"parent_session": [None, "a"], "parent_turn": [None, 0]}

# law: (columns of two calls, row, column)
BREAKS = {
    "turn_in_range": ({"turn": [-1, 0]}, 0),
    "prompt_tokens_in_range": ({"prompt_tokens": [100, 0]}, 1),
    "output_tokens_in_range": ({"output_tokens": [0, 1]}, 0),
    "shared_tokens_in_range": ({"shared_tokens": [0, -5], **PARENT}, 1),
    "shared_output_tokens_in_range": ({"shared_output_tokens": [None, -5], **PARENT}, 1),
    "group_tokens_in_range": ({"group_id": ["g", None], "group_tokens": [-1, None]}, 0),
    "delay_s_is_a_time": ({"delay_s": [0.0, NAN]}, 1),
    "arrival_s_is_a_time": ({"arrival_s": [-0.5, None]}, 0),
    "tool_latency_s_is_a_time": ({"tool_latency_s": [None, INF]}, 1),
    "observed_ttft_s_is_a_time": ({"observed_ttft_s": [-1.0, None]}, 0),
    "observed_e2e_s_is_a_time": ({"observed_e2e_s": [None, -1.0]}, 1),
    "turns_ascend": ({"turn": [3, 3]}, 1),
    "shared_needs_parent": ({"shared_tokens": [5, 0]}, 0),
    "shared_within_prompt": ({"shared_tokens": [0, 80], "prompt_tokens": [100, 79], **PARENT}, 1),
    "shared_within_parent": ({"shared_tokens": [0, 80], "prompt_tokens": [79, 100], **PARENT}, 1),
    "shared_output_follows_whole_prompt": (
        {"shared_tokens": [0, 99], "shared_output_tokens": [None, 1], "prompt_tokens": [100, 200], **PARENT},
        1,
    ),
    "shared_output_within_parent": (
        {
            "shared_tokens": [0, 100],
            "shared_output_tokens": [None, 11],
            "prompt_tokens": [100, 200],
            **PARENT,
        },
        1,
    ),
    "shared_sum_within_prompt": (
        {"shared_tokens": [0, 100], "shared_output_tokens": [None, 9], "prompt_tokens": [100, 108], **PARENT},
        1,
    ),
    "group_is_for_roots": ({"group_id": [None, "g"], "group_tokens": [None, 1], **PARENT}, 1),
    "group_within_prompt": ({"group_id": ["g", None], "group_tokens": [101, None]}, 0),
    "max_output_covers_output": ({"max_output_tokens": [None, 9]}, 1),
    "reasoning_within_output": ({"reasoning_tokens": [11, None]}, 0),
    "phases_sum_to_output": ({"phases": [None, [{"kind": "code", "tokens": 9}]]}, 1),
    "phases_not_negative": (
        {"phases": [None, [{"kind": "code", "tokens": -2}, {"kind": "prose", "tokens": 12}]]},
        1,
    ),
    "arrival_is_for_roots": ({"arrival_s": [None, 1.0]}, 1),
    "waits_once": ({"after": [None, [{"session_id": "a", "turn": 0}] * 2]}, 1),
    "arrivals_ascend": ({"arrival_s": [2.0, 1.0], "session_id": ["a", "b"], "turn": [0, 0]}, 1),
}
COLUMNS = {law.name: law.column for law in _LAWS}


def test_every_law_has_a_trace_that_breaks_it():
    assert set(BREAKS) == set(COLUMNS)


@pytest.mark.parametrize("law", BREAKS)
def test_a_trace_that_breaks_a_law_is_refused(raw_file, law):
    columns, row = BREAKS[law]
    path = raw_file(columns)
    broken = {finding.law: finding for finding in load(path)[1]}
    assert broken[law].row == row
    assert broken[law].column == COLUMNS[law]
    with pytest.raises(TraceError, match=f"row {row} .*column '{next(iter(broken.values())).column}'"):
        read_table(path)


def test_a_finding_counts_its_rows(raw_file):
    _, findings = load(raw_file({"output_tokens": [0, 0]}))
    assert findings[0].count == 2
    assert "2 rows" in findings[0].message


def test_equal_arrivals_are_legal(raw_file):
    columns = {"arrival_s": [1.0, 1.0], "session_id": ["a", "b"], "turn": [0, 0]}
    assert read_table(raw_file(columns)).arrival_s.tolist() == [1.0, 1.0]


@given(data=st.data())
def test_legal_traces_break_no_law(tmp_path_factory, legal_rows, data):
    from v4traces import TraceMetadata

    rows = data.draw(legal_rows)
    path = tmp_path_factory.mktemp("legal") / "t.parquet"
    with TraceWriter(path, TraceMetadata("test", "synthetic")) as writer:
        writer.append(rows)
    table = read_table(path)
    assert list(broken_laws(table)) == []
    assert table.prompt_tokens.tolist() == [row.prompt_tokens for row in rows]
