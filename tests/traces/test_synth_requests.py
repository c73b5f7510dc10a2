"""What can be asked of the generator: the bundled sample, an output, and nothing impossible."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from v4traces import TraceError, TraceMetadata, TraceWriter, read_table
from v4traces.synth import SAMPLE_SEED, SAMPLE_SESSIONS, command, generate
from v4traces.synth.command import SAMPLE_PATH


def test_the_bundled_sample_is_made_again_byte_for_byte(tmp_path: Path) -> None:
    made = command(sample=True, output=tmp_path / "sample.parquet")
    if pq.read_metadata(SAMPLE_PATH).created_by != f"parquet-cpp-arrow version {pa.__version__}":
        # Another arrow packs the same rows differently.
        assert pq.read_table(made).equals(pq.read_table(SAMPLE_PATH))
    else:
        assert made.read_bytes() == SAMPLE_PATH.read_bytes()


def test_the_bundled_sample_is_small_and_has_something_of_everything() -> None:
    table = read_table(SAMPLE_PATH)
    assert SAMPLE_PATH.stat().st_size < 400_000
    starts = [row for row in generate(seed=SAMPLE_SEED, sessions=SAMPLE_SESSIONS) if row.turn == 0]
    agents = sum(row.trigger == "subagent" for row in starts)
    assert len(table.session_names) - agents == SAMPLE_SESSIONS >= 64
    assert agents >= 2
    assert (np.diff(table.after_offsets) > 1).any()
    hit = np.where(table.parent >= 0, table.shared_tokens, 0).sum() / table.prompt_tokens.sum()
    assert hit == pytest.approx(0.963, abs=0.01)
    assert (table.tool_latency_s == 120.0).any()
    assert table.prompt_tokens.max() > 300_000


def test_the_sample_takes_no_other_recipe() -> None:
    with pytest.raises(TraceError, match=r"sessions = 9 cannot go with --sample"):
        command(sample=True, sessions=9)


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    path = command(output=tmp_path / "t.parquet", sessions=1)
    before = path.read_bytes()
    with pytest.raises(TraceError, match="force"):
        command(output=path, sessions=2)
    assert path.read_bytes() == before
    command(output=path, sessions=2, force=True)
    assert path.read_bytes() != before


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"sessions": 0}, "sessions is 0"),
        ({"sessions": 2_000_000}, "six digits"),
        ({"calls": 0}, "calls is 0"),
        ({"sessions": None}, "would not end"),
        ({"arrivals_rate": 0.0}, "positive and finite"),
        ({"arrivals_rate": float("nan")}, "positive and finite"),
    ],
)
def test_a_wrong_request_is_refused_before_the_first_row(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(TraceError, match=says):
        generate(**wrong)  # type: ignore[arg-type]


def test_no_output_and_an_impossible_cap_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no output"):
        command(sessions=1)
    with pytest.raises(TraceError, match="at least 32768"):
        command(output=tmp_path / "t.parquet", sessions=1, context_cap_tokens=1000)
    assert list(tmp_path.iterdir()) == []


def test_rows_are_what_the_writer_takes(tmp_path: Path) -> None:
    """The command's file is the generator's rows and nothing else."""
    by_hand = tmp_path / "hand.parquet"
    with TraceWriter(by_hand, TraceMetadata("synth", "synthetic")) as writer:
        writer.append(generate(seed=12, sessions=3))
    written = command(output=tmp_path / "command.parquet", seed=12, sessions=3)
    assert pq.read_table(by_hand).equals(pq.read_table(written))
