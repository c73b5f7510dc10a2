"""`v4sim export` and `v4sim compare`: a run as input for another one, and two runs side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from v4sim.rundir import read_run

Run = Callable[..., Any]


@pytest.fixture
def run_dir(v4sim: Run, small_trace: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    assert v4sim("replay", small_trace, "-o", folder, "--no-report", "--sessions", "2").code == 0
    return folder


def test_a_run_exported_and_replayed_is_itself(
    v4sim: Run, run_dir: Path, small_trace: Path, tmp_path: Path
) -> None:
    exported, again = tmp_path / "again.parquet", tmp_path / "again"
    outcome = v4sim("export", run_dir, "--trace", small_trace, "-o", exported)
    assert outcome.code == 0, outcome.err
    assert "12 calls" in outcome.err
    assert v4sim("replay", exported, "-o", again, "--no-report", "--arrivals", "trace").code == 0
    first, second = read_run(run_dir).calls, read_run(again).calls
    for name in ("prompt_tokens", "hit_tokens", "rank"):
        assert first[name].tolist() == second[name].tolist()
    # In a closed loop each session that takes over from another is written one nanosecond late.
    assert abs(first["last_token_ns"] - second["last_token_ns"]).max() <= 2


def test_records_are_one_line_a_call(v4sim: Run, run_dir: Path, small_trace: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    outcome = v4sim("export", run_dir, "-t", small_trace, "-o", records)
    assert outcome.code == 0, outcome.err
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    assert len(lines) == 12
    assert lines[0]["metrics"]["input_sequence_length"]["value"] == 2_000


def test_an_export_is_refused_in_one_paragraph(
    v4sim: Run, run_dir: Path, small_trace: Path, long_trace: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    for argv, says in (
        ((run_dir, "-t", long_trace, "-o", out), "is not the trace of"),
        ((run_dir, "-t", small_trace, "-o", tmp_path / "out.csv"), "neither in .parquet"),
        ((tmp_path, "-t", small_trace, "-o", out), "is not a run directory"),
        ((run_dir, "-t", tmp_path / "none.parquet", "-o", out), "none.parquet"),
        ((run_dir, "-t", small_trace, "-o", tmp_path / "no" / "out.parquet"), "does not exist"),
        ((run_dir, "-t", small_trace, "-o", small_trace), "--force"),
    ):
        outcome = v4sim("export", *argv)
        assert outcome.code == 2, argv
        assert says in outcome.complaint
        assert not out.exists()


def test_a_comparison_is_a_page(v4sim: Run, run_dir: Path, small_trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    flags = ["--no-report", "--sessions", "2", "--set", "engine.cpu_step_us=9000"]
    assert v4sim("replay", small_trace, "-o", other, *flags).code == 0
    outcome = v4sim("compare", run_dir, other)
    assert outcome.code == 0, outcome.err
    assert outcome.out == f"{other / 'compare.html'}\n"
    assert "deployment.engine.cpu_step_us" in (other / "compare.html").read_text()
    assert v4sim("compare", run_dir, other).code == 2
    elsewhere = tmp_path / "page.html"
    assert v4sim("compare", run_dir, other, "-o", elsewhere).out == f"{elsewhere}\n"
    # A run with a comparison in it is still one that --force may replace.
    assert v4sim("replay", small_trace, "-o", other, "--no-report", "--force").code == 0


def test_two_runs_are_needed_to_compare(v4sim: Run, run_dir: Path, tmp_path: Path) -> None:
    outcome = v4sim("compare", run_dir, tmp_path)
    assert outcome.code == 2
    assert "is not a run directory" in outcome.complaint
