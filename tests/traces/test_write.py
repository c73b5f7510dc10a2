"""Writing: whole or not at all, the same bytes for the same rows, nothing that breaks a law."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4traces import CallRef, CallRow, TraceError, TraceMetadata, TraceWriter, read_table

META = TraceMetadata("test", "synthetic", notes=("one",))


def _rows(count: int) -> list[CallRow]:
    return [CallRow(session_id="a", turn=i, prompt_tokens=10 + i, output_tokens=1) for i in range(count)]


def _write(path: Path, rows: list[CallRow]) -> None:
    with TraceWriter(path, META) as writer:
        writer.append(rows)


def _write_and_raise(path: Path, error: type[BaseException]) -> None:
    with TraceWriter(path, META, force=True) as writer:
        writer.append(_rows(3))
        raise error


@given(st.lists(st.integers(0, 40), max_size=6))
def test_bytes_do_not_depend_on_the_sizes_of_batches(tmp_path_factory, sizes):
    folder = tmp_path_factory.mktemp("batches")
    rows = _rows(sum(sizes) + 1)
    with TraceWriter(folder / "whole", META) as writer:
        writer.append(rows)
    with TraceWriter(folder / "parts", META) as writer:
        rest = iter(rows)
        for size in sizes:
            writer.append(next(rest) for _ in range(size))
        writer.append(rest)
    assert (folder / "whole").read_bytes() == (folder / "parts").read_bytes()


def test_row_groups_stream(tmp_path, monkeypatch):
    monkeypatch.setattr("v4traces.write.ROW_GROUP_ROWS", 7)
    with TraceWriter(tmp_path / "t", META) as writer:
        writer.append(_rows(5))
        writer.append(_rows(23)[5:])
    assert read_table(tmp_path / "t").prompt_tokens.tolist() == list(range(10, 33))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_nothing(tmp_path, error):
    with pytest.raises(error):
        _write_and_raise(tmp_path / "t", error)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_overwrite_leaves_what_was_there(tmp_path):
    (tmp_path / "t").write_text("precious")
    with pytest.raises(ValueError):
        _write_and_raise(tmp_path / "t", ValueError)
    assert (tmp_path / "t").read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_overwritten_without_force(tmp_path):
    (tmp_path / "t").write_text("precious")
    with pytest.raises(TraceError, match="--force"), TraceWriter(tmp_path / "t", META):
        pass
    assert (tmp_path / "t").read_text() == "precious"


def test_a_file_that_appears_while_writing_is_not_overwritten(tmp_path):
    writer = TraceWriter(tmp_path / "t", META)
    writer.__enter__()
    writer.append(_rows(1))
    (tmp_path / "t").write_text("precious")
    with pytest.raises(TraceError, match="--force"):
        writer.__exit__(None, None, None)
    assert (tmp_path / "t").read_text() == "precious"


def test_a_broken_law_is_refused_by_the_name_of_the_target(tmp_path):
    row = CallRow(session_id="a", turn=0, prompt_tokens=10, output_tokens=1, shared_tokens=4)
    with pytest.raises(TraceError, match=r"^t\.parquet, row 0 .*column 'shared_tokens'"):
        _write(tmp_path / "t.parquet", [row])
    assert list(tmp_path.iterdir()) == []


def test_a_trace_without_calls_is_refused(tmp_path):
    with pytest.raises(TraceError, match="at least one"), TraceWriter(tmp_path / "t", META):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_does_not_fit_names_row_and_column(tmp_path):
    rows = [*_rows(2), CallRow(session_id="a", turn=2, prompt_tokens=1 << 40, output_tokens=1)]
    with pytest.raises(TraceError, match="row 2, column 'prompt_tokens': the value 1099511627776"):
        _write(tmp_path / "t", rows)


def test_a_folder_that_is_not_there_is_refused_before_work(tmp_path):
    with pytest.raises(TraceError, match="does not exist"), TraceWriter(tmp_path / "no" / "t", META):
        pytest.fail("the writer must refuse on entering")


def test_metadata_may_change_until_the_end(tmp_path):
    with TraceWriter(tmp_path / "t", META) as writer:
        writer.append(_rows(1))
        writer.metadata = META.with_notes("two")
    assert read_table(tmp_path / "t").metadata.notes == ("one", "two")


def test_null_and_empty_waits_are_different(write):
    rows = [
        CallRow(session_id="a", turn=0, prompt_tokens=1, output_tokens=1),
        CallRow(session_id="a", turn=1, prompt_tokens=1, output_tokens=1),
        CallRow(session_id="a", turn=2, prompt_tokens=1, output_tokens=1, after=()),
        CallRow(
            session_id="a", turn=3, prompt_tokens=1, output_tokens=1, after=(CallRef("a", 0), CallRef("a", 2))
        ),
        CallRow(session_id="b", turn=0, prompt_tokens=1, output_tokens=1, after=(CallRef("a", 3),)),
    ]
    table = write(rows)
    assert table.after_offsets.tolist() == [0, 0, 1, 1, 3, 4]
    assert table.after_rows.tolist() == [0, 0, 2, 3]
