"""The column view of a run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.errors import RunError
from v4sim.metrics.calls import Calls, Coded, dense_codes


def test_a_missing_column_is_named(call_columns):
    columns = call_columns([{}])
    del columns["admit_ns"]
    with pytest.raises(RunError, match="'admit_ns'"):
        Calls.of(columns)


def test_columns_of_different_length_are_refused(call_columns):
    columns = call_columns([{}, {}])
    columns["rank"] = [0]
    with pytest.raises(RunError, match="different lengths"):
        Calls.of(columns)


def test_a_run_without_calls_is_a_run(make_calls):
    calls = make_calls([])
    assert len(calls) == 0
    assert calls.dense("session", "instance")[1] == 0
    assert not calls.completed.any()


def test_text_codes_keep_texts_and_first_appearance():
    coded = Coded.of(["warm", "cold", "warm"])
    assert coded.names == ("warm", "cold")
    assert list(coded) == ["warm", "cold", "warm"]
    assert coded.equals("cold").tolist() == [False, True, False]
    assert coded.equals("fork").tolist() == [False, False, False]


def test_codes_of_any_list_are_numbered_by_appearance():
    names = ("cold", "warm", "fork")
    coded = Coded.by_appearance(np.array([2, 0, 2], dtype=np.int8), names)
    assert (coded.names, coded.codes.tolist(), coded.codes.dtype) == (("fork", "cold"), [0, 1, 0], np.int8)
    assert (coded[1], coded[-1], list(coded[1:]), len(coded)) == ("cold", "fork", ["cold", "fork"], 3)
    assert Coded.of(coded) is coded
    assert len(Coded.by_appearance(np.zeros(0, dtype=np.int8), names)) == 0


def test_hits_of_a_call_never_admitted_are_none(make_calls):
    calls = make_calls([{"hit_tokens": -1, "hit_host_tokens": -1, "hit_storage_tokens": -1}])
    assert calls.hits_all_tiers.tolist() == [0]


def test_calls_are_found_by_row_and_copy(make_calls):
    calls = make_calls([{"row": 5}, {"row": 0, "instance": 1}, {"row": 5, "instance": 1}])
    rows, copies = np.array([5, 5, 0, 0, -1, 9]), np.array([0, 1, 1, 0, 1, 0])
    assert calls.find(rows, copies).tolist() == [0, 2, 1, -1, -1, -1]
    assert make_calls([]).find(rows, copies).tolist() == [-1] * 6


@given(st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 2**31), st.integers(-1, 1)), min_size=1))
def test_dense_codes_number_distinct_tuples_by_first_appearance(rows):
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    codes, count = dense_codes(*columns)
    seen: dict[tuple[int, ...], int] = {}
    assert codes.tolist() == [seen.setdefault(row, len(seen)) for row in rows]
    assert count == len(seen)
