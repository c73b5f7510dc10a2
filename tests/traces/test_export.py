"""A trace back as rows, and as Mooncake lines that come back as the same structure."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4traces import (
    Acceptance,
    CachedTokens,
    CallRef,
    CallRow,
    TraceError,
    TraceMetadata,
    TraceTable,
    TraceWriter,
)
from v4traces.export import mooncake_lines, table_rows, write_mooncake

META = TraceMetadata("test", "synthetic", block_tokens=512, prefix_error_tokens=511)


def _same(one: TraceTable, two: TraceTable) -> None:
    for field in fields(TraceTable):
        if field.name == "sha256":
            continue  # of bytes: null and empty waits of a first call mean the same
        a, b = getattr(one, field.name), getattr(two, field.name)
        if isinstance(a, np.ndarray):
            assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), field.name
        else:
            assert a == b, field.name


@given(data=st.data())
def test_rows_written_again_give_the_same_trace(tmp_path_factory, legal_rows, data):
    folder = tmp_path_factory.mktemp("again")
    with TraceWriter(folder / "t", META) as writer:
        writer.append(data.draw(legal_rows))
    (folder / "again").mkdir()
    with TraceWriter(folder / "again" / "t", META) as again:
        again.append(table_rows(writer.table))
    _same(writer.table, again.table)


def test_every_column_survives(write):
    full = CallRow(
        session_id="b",
        turn=3,
        task_id="t",
        parent_session="a",
        parent_turn=0,
        shared_tokens=100,
        shared_output_tokens=5,
        prompt_tokens=300,
        output_tokens=12,
        max_output_tokens=64,
        reasoning_tokens=4,
        after=(CallRef("a", 0),),
        delay_s=1.25,
        trigger="retry",
        tool_class="shell",
        tool_latency_s=0.5,
        acceptance=(Acceptance("code", (0.75, 0.5)), Acceptance("prose", ())),
        observed_cached_tokens=CachedTokens(64, 32, 0),
        observed_ttft_s=0.125,
        observed_e2e_s=2.5,
        snapshot_id="s1",
        tool_schema_id="s2",
        system_id="s3",
        environment_id="s4",
        model="m",
        priority=7,
        success=False,
    )
    root = CallRow(
        session_id="a",
        turn=0,
        prompt_tokens=100,
        output_tokens=9,
        group_id="g",
        group_tokens=10,
        arrival_s=4.0,
    )
    assert list(table_rows(write([root, full]))) == [root, full]


def _reimport(table, tmp_path, run_import) -> TraceTable:
    write_mooncake(table, tmp_path / "lines.jsonl", force=True)
    return run_import("mooncake", tmp_path / "lines.jsonl")


@given(data=st.data())
def test_mooncake_lines_keep_sizes_waits_and_prefixes_to_a_block(tmp_path_factory, legal_rows, data):
    from v4traces.importers import importer
    from v4traces.importers.base import ImportOptions, import_trace

    folder = tmp_path_factory.mktemp("mooncake")
    with TraceWriter(folder / "t", META) as writer:
        writer.append(data.draw(legal_rows))
    table = writer.table
    write_mooncake(table, folder / "lines.jsonl")
    back = import_trace(
        importer("mooncake"), [folder / "lines.jsonl"], folder / "back", ImportOptions()
    ).table
    assert back.prompt_tokens.tolist() == table.prompt_tokens.tolist()
    assert back.output_tokens.tolist() == table.output_tokens.tolist()
    assert back.after_offsets.tolist() == table.after_offsets.tolist()
    assert back.after_rows.tolist() == table.after_rows.tolist()
    assert np.allclose(back.delay_s, table.delay_s, atol=5e-4, rtol=0)
    # Whole blocks along the way to the root are kept, so nothing is shared that was not.
    assert (back.bound_tokens() <= table.bound_tokens()).all()


def test_mooncake_prefixes_lose_at_most_their_last_block(write, tmp_path, run_import):
    rows = [
        CallRow(
            session_id="a", turn=0, prompt_tokens=2000, output_tokens=10, group_id="g", group_tokens=1100
        ),
        CallRow(
            session_id="b", turn=0, prompt_tokens=1800, output_tokens=10, group_id="g", group_tokens=1200
        ),
        CallRow(
            session_id="a",
            turn=1,
            prompt_tokens=5000,
            output_tokens=10,
            parent_session="a",
            parent_turn=0,
            shared_tokens=2000,
        ),
    ]
    table = write(rows)
    back = _reimport(table, tmp_path, run_import)
    assert table.bound_tokens().tolist() == [0, 1100, 2000]
    assert back.bound_tokens().tolist() == [0, 1024, 1536]


def test_plain_requests_become_plain_lines(run_import, json_file):
    source = json_file(
        {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]},
        {"timestamp": 3000, "input_length": 1500, "output_length": 6, "hash_ids": [0, 2, 3]},
        {"timestamp": 3000, "input_length": 600, "output_length": 6, "hash_ids": [0, 1]},
    )
    table = run_import("mooncake", source)
    assert "\n".join(mooncake_lines(table)) + "\n" == source.read_text()


def test_an_export_never_overwrites_unasked(write, tmp_path):
    table = write([CallRow(session_id="a", turn=0, prompt_tokens=1, output_tokens=1)])
    (tmp_path / "x.jsonl").write_text("precious")
    with pytest.raises(TraceError, match="--force"):
        write_mooncake(table, tmp_path / "x.jsonl")
    assert (tmp_path / "x.jsonl").read_text() == "precious"
