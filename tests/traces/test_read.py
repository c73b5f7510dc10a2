"""Reading: what is not a trace is refused with its reason, what is one is read in any legal type."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pyarrow as pa
import pytest

from v4traces import CallRow, TraceError, TraceMetadata, read_table


def _refused(path) -> str:
    with pytest.raises(TraceError) as error:
        read_table(path)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "git-LFS pointer"),
        (b"\n<!DOCTYPE html><html><body>Not found</body></html>", "web page"),
        (b"", "is empty"),
        (b'{"timestamp": 0}\n', "not a parquet file"),
        (b"PAR1" + b"x" * 100, "damaged or truncated"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path, content, says):
    path = tmp_path / "trace.parquet"
    path.write_bytes(content)
    message = _refused(path)
    assert says in message
    assert "trace.parquet" in message


def test_a_truncated_trace_is_refused(raw_file):
    path = raw_file()
    path.write_bytes(path.read_bytes()[:-20])
    assert "damaged or truncated" in _refused(path)


def test_damaged_pages_are_refused(raw_file):
    path = raw_file({"session_id": ["a" * 3000, "b" * 3000], "turn": [0, 0]})
    data = bytearray(path.read_bytes())
    data[20:60] = b"\xff" * 40
    path.write_bytes(data)
    assert "damaged or truncated" in _refused(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    assert "no file" in _refused(tmp_path / "none.parquet")
    assert "is a folder" in _refused(tmp_path)


def test_an_unknown_column_is_refused_with_the_nearest_legal_one(raw_file):
    message = _refused(raw_file({"promt_tokens": [1, 2]}))
    assert "'promt_tokens'" in message
    assert "did you mean 'prompt_tokens'" in message


def test_a_missing_required_column_is_refused(raw_file):
    assert "no column 'delay_s'" in _refused(raw_file(drop=("delay_s",)))


def test_a_null_in_a_required_column_names_its_row(raw_file):
    assert "row 1, column 'output_tokens': the value is null" in _refused(
        raw_file({"output_tokens": [1, None]})
    )


@pytest.mark.parametrize("values", [["1", "x"], [1.5, 2.0], [1 << 40, 1]])
def test_a_column_of_another_type_is_refused_unless_no_value_changes(raw_file, values):
    assert "column 'prompt_tokens'" in _refused(raw_file({"prompt_tokens": pa.array(values)}))


def test_types_of_other_writers_are_read(raw_file):
    columns = {
        "prompt_tokens": pa.array([100, 120], pa.int64()),
        "output_tokens": pa.array([1.0, 2.0], pa.float64()),
        "session_id": pa.array(["a", "b"], pa.large_string()),
        "turn": pa.array([0, 0], pa.int16()),
        "trigger": pa.array(["user", "resume"]).dictionary_encode(),
        "model": pa.array([None, "m"], pa.string()),
    }
    table = read_table(raw_file(columns))
    assert table.prompt_tokens.tolist() == [100, 120]
    assert table.output_tokens.tolist() == [1, 2]
    assert table.session_names == ["a", "b"]
    assert table.trigger.tolist() == [0, 3]
    assert table.model.tolist() == [-1, 0]


def test_an_absent_nullable_column_reads_as_all_null(raw_file):
    table = read_table(raw_file())
    assert table.parent.tolist() == [-1, -1]
    assert table.max_output_tokens.tolist() == [-1, -1]
    assert np.isnan(table.arrival_s).all()
    assert table.priority.tolist() == [0, 0]
    assert table.success.tolist() == [-1, -1]
    assert table.task_names == []
    assert table.acceptance == {}


def test_nulls_among_values_are_told_apart_from_values(raw_file):
    table = read_table(
        raw_file(
            {
                "success": [None, False],
                "priority": [None, -3],
                "max_output_tokens": [None, 20],
                "observed_cached_tokens": [None, {"device": 0, "host": 4, "storage": None}],
            }
        )
    )
    assert table.success.tolist() == [-1, 0]
    assert table.priority.tolist() == [0, -3]
    assert table.max_output_tokens.tolist() == [-1, 20]
    assert table.observed_device_tokens.tolist() == [-1, 0]
    assert table.observed_host_tokens.tolist() == [-1, 4]
    assert table.observed_storage_tokens.tolist() == [-1, -1]


def test_another_schema_version_is_refused(raw_file):
    newer = json.dumps({"schema_version": 2, "nonsense": 1}).encode()
    assert "schema version 2" in _refused(raw_file(metadata=newer))


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        (None, "no v4traces metadata"),
        (b"{", "not JSON"),
        (b"[]", "no schema_version"),
        (b'{"schema_version": 1, "source_format": "x"}', "incomplete"),
        (b'{"schema_version": 1, "source_format": "x", "trace_class": "guess"}', "trace_class is 'guess'"),
        (b'{"schema_version": 1, "source_format": "x", "trace_class": "synthetic", "host": "h"}', "'host'"),
    ],
)
def test_bad_metadata_is_refused(raw_file, metadata, says):
    assert says in _refused(raw_file(metadata=metadata))


def test_an_illegal_word_is_refused_with_the_legal_ones(raw_file):
    message = _refused(raw_file({"trigger": ["user", "tool"]}))
    assert "row 1, column 'trigger'" in message
    assert "'tool'" in message
    assert "tool_result" in message
    phases = _refused(raw_file({"phases": [None, [{"kind": "poem", "tokens": 10}]]}))
    assert "row 1, column 'phases'" in phases
    assert "'poem'" in phases
    assert "prose" in phases


@pytest.mark.parametrize("rates", [[1.5], [-0.1], [float("nan")]])
def test_an_acceptance_rate_is_a_probability(raw_file, rates):
    message = _refused(raw_file({"acceptance": [None, [{"kind": "code", "per_position": rates}]]}))
    assert "row 1, column 'acceptance'" in message


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (
            {"parent_session": ["b", None], "parent_turn": [0, None]},
            "row 0, column 'parent_session'.*not in the file",
        ),
        ({"parent_session": ["a", None], "parent_turn": [1, None]}, "row 0, .*does not stand earlier"),
        ({"parent_session": ["a", None], "parent_turn": [0, None]}, "row 0, .*does not stand earlier"),
        ({"parent_session": [None, "a"], "parent_turn": [None, 7]}, "row 1, .*turn 7.*not in the file"),
        ({"parent_session": [None, "a"]}, "row 1: only one of parent_session and parent_turn"),
        (
            {"after": [[{"session_id": "a", "turn": 1}], None]},
            "row 0, column 'after'.*does not stand earlier",
        ),
        ({"after": [None, [{"session_id": "z", "turn": 0}]]}, "row 1, column 'after'.*'z'.*not in the file"),
        ({"group_id": ["g", None]}, "only one of group_id and group_tokens"),
    ],
)
def test_links_name_earlier_calls_of_the_file(raw_file, columns, says):
    with pytest.raises(TraceError, match=says):
        read_table(raw_file(columns))


def test_the_hash_is_that_of_the_bytes_and_the_path_has_no_folders(raw_file):
    path = raw_file()
    table = read_table(path)
    assert table.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert table.path == "raw.parquet"


def test_metadata_survives(write):
    metadata = TraceMetadata("x", "hash_exact", 64, 63, "tok", 1.5, 1, 10.0, ("a", "b"))
    row = CallRow(session_id="a", turn=0, prompt_tokens=1, output_tokens=1)
    assert write([row], metadata).metadata == metadata


def test_codes_follow_the_order_of_first_appearance(raw_file):
    # A dictionary in another order than its use, with an entry that no row uses.
    words = pa.DictionaryArray.from_arrays(pa.array([2, None, 0]), pa.array(["b", "unused", "a"]))
    table = read_table(raw_file({"tool_class": words}, num_rows=3))
    assert table.tool_class_names == ["a", "b"]
    assert table.tool_class.tolist() == [0, -1, 1]
