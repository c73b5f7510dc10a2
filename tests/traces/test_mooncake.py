"""Mooncake requests: the ceil rule, global hashes, bucketed times, sessions of extended files."""

from __future__ import annotations

import numpy as np
import pytest

from v4traces import TraceError


def _line(ids, length=None, time=0, out=7, **more):
    length = 512 * len(ids) if length is None else length
    return {"timestamp": time, "input_length": length, "output_length": out, "hash_ids": ids, **more}


def test_a_request_is_a_root_session_with_an_arrival(run_import, json_file):
    table = run_import("mooncake", json_file(_line([1, 2], time=1500), _line([3], time=4000)))
    assert table.arrival_s.tolist() == [1.5, 4.0]
    assert len(table.session_names) == 2
    assert table.after_rows.size == 0
    assert table.delay_s.tolist() == [0.0, 0.0]


def test_hashes_are_global_and_the_parent_is_the_earliest_longest_match(run_import, json_file):
    lines = [_line([1, 2]), _line([1, 2, 3]), _line([1, 2, 3, 4]), _line([1, 2, 3, 5]), _line([9, 2, 3])]
    table = run_import("mooncake", json_file(*lines))
    assert table.parent.tolist() == [-1, 0, 1, 1, -1]
    assert table.shared_tokens.tolist() == [0, 1024, 1536, 1536, 0]


def test_shared_tokens_end_with_the_shorter_prompt(run_import, json_file):
    # The second repeats the first with its partial block, the third goes on after it.
    lines = [_line([1, 2], length=700), _line([1, 2], length=700), _line([1, 2, 3], length=1100)]
    assert run_import("mooncake", json_file(*lines)).shared_tokens.tolist() == [0, 700, 700]


@pytest.mark.parametrize(("length", "count", "expected"), [(1024, 3, 2), (1025, 2, 3), (1, 0, 1), (0, 1, 0)])
def test_the_number_of_ids_is_the_number_of_blocks(run_import, json_file, length, count, expected):
    path = json_file(_line([1]), _line(list(range(count)), length=length))
    with pytest.raises(TraceError) as error:
        run_import("mooncake", path)
    message = str(error.value)
    assert "line 2" in message
    assert f"{count} hash ids for an input_length of {length}" in message
    assert "(n - 1) * 512 < input_length <= n * 512" in message
    assert f"{expected} ids are expected" in message


def test_wide_hashes_with_equal_low_halves_are_different_prefixes(run_import, json_file):
    low = 0x0BAD_CAFE
    lines = [_line([(1 << 63) + low, 1]), _line([(1 << 40) + low, 1]), _line([(1 << 63) + low, 2])]
    assert run_import("mooncake", json_file(*lines)).parent.tolist() == [-1, -1, 0]


def test_requests_of_one_bucket_keep_the_order_of_the_file(run_import, json_file):
    lines = [_line([n], time=3000 * (n // 4), out=n + 1) for n in range(12)]
    table = run_import("mooncake", json_file(*lines))
    assert table.output_tokens.tolist() == list(range(1, 13))


def test_requests_out_of_order_are_sorted_and_counted(run_import, json_file):
    table = run_import("mooncake", json_file(_line([1], time=9), _line([1, 2], time=3), _line([1], time=3)))
    assert table.arrival_s.tolist() == [0.003, 0.003, 0.009]
    assert table.parent.tolist() == [-1, 0, 0]
    assert any(note.endswith("sorted: 1") for note in table.metadata.notes)


def test_lines_of_a_session_are_turns_with_pauses(run_import, json_file):
    lines = [
        _line([1], session_id="chat", time=1000),
        _line([2], session_id="chat", time=99, delay=2500),
        _line([3], session_id="other", time=2000),
        _line([4], session_id="chat", delay=100),
    ]
    table = run_import("mooncake", json_file(*lines))
    # In the order of the earliest times by the delays: 1.0, 2.0, 3.5, 3.6 s.
    assert table.prompt_tokens.size == 4
    assert table.turn.tolist() == [0, 0, 1, 2]
    assert table.delay_s.tolist() == [0.0, 0.0, 2.5, 0.1]
    assert table.arrival_s[:2].tolist() == [1.0, 2.0]
    assert np.isnan(table.arrival_s[2:]).all()
    assert table.after_rows.tolist() == [0, 2]


def test_wait_for_names_what_must_be_done_first(run_import, json_file):
    lines = [
        _line([1], request_id="r0"),
        _line([2], session_id="a", request_id="r1", wait_for=["r0"]),
        _line([3], request_id="r2", wait_for=["r0"], session_id="b"),
        _line([4], session_id="a", wait_for=["r1", "r2"], delay=10),
    ]
    for line in lines[1:]:
        del line["timestamp"]
    table = run_import("mooncake", json_file(*lines))
    assert table.after_offsets.tolist() == [0, 0, 1, 2, 4]
    assert table.after_rows.tolist() == [0, 0, 1, 2]


def test_limit_takes_whole_sessions(run_import, json_file):
    lines = [
        _line([1], session_id="a"),
        _line([2], session_id="b"),
        _line([3], session_id="a", delay=1),
        _line([4], session_id="b", delay=1),
    ]
    assert run_import("mooncake", json_file(*lines), limit=1).prompt_tokens.size == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"timestamp": -1}, "`timestamp` is -1"),
        ({"timestamp": None}, "`timestamp` is missing"),
        ({"timestamp": "now"}, "`timestamp` is a str"),
        ({"timestamp": float("inf")}, "`timestamp` is inf"),
        ({"delay": -3}, "`delay` is -3"),
        ({"output_length": 1.5}, "`output_length` is 1.5"),
        ({"output_length": -1}, "`output_length` is -1"),
        ({"hash_ids": 5}, "`hash_ids` must be a list"),
        ({"hash_ids": [None, 1]}, "whole numbers or strings"),
        ({"wait_for": ["r9"]}, "`wait_for` names a request_id"),
        ({"wait_for": "r9"}, "`wait_for` must be a list"),
    ],
)
def test_a_malformed_request_names_its_line_and_key(run_import, json_file, change, says):
    with pytest.raises(TraceError, match=says) as error:
        run_import("mooncake", json_file(_line([1]), _line([1, 2]) | change))
    assert "source.json, line 2" in str(error.value)


@pytest.mark.parametrize("value", [{"timestamp": 5}, [1, 2], "text", {"requests": []}])
def test_another_format_is_refused(run_import, json_file, value):
    with pytest.raises(TraceError, match="no mooncake request"):
        run_import("mooncake", json_file(value))


def test_empty_prompts_are_dropped_and_empty_outputs_kept(run_import, json_file):
    table = run_import("mooncake", json_file(_line([], out=3), _line([1], out=0)))
    assert table.output_tokens.tolist() == [1]
    assert sum("dropped: 1" in note or "one token: 1" in note for note in table.metadata.notes) == 2
