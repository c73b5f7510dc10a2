"""`v4sim replay` as a person runs it: defaults are said, results go to stdout, files are whole or absent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_a_trace_is_all_it_needs(
    v4sim: Run, small_trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = v4sim("replay", small_trace.name, "--no-report")
    assert outcome.code == 0, outcome.err
    for said in ("4xB200 V4-Flash DPA4+EP4 sglang", "b200", "sessions", "seed 0", "small-run"):
        assert said in outcome.err, f"{said!r} was taken without saying so"
    assert {path.name for path in (tmp_path / "small-run").iterdir()} == {
        "calls.parquet",
        "result.json",
        "timeline.json",
    }


def test_the_summary_is_on_stdout_and_the_talk_on_stderr(
    v4sim: Run, small_trace: Path, tmp_path: Path
) -> None:
    outcome = v4sim("replay", small_trace, "-o", tmp_path / "run", "--no-report", "--sessions", "2")
    assert outcome.code == 0, outcome.err
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert " ".join(outcome.out.split()).startswith(result["headline"]["sentence"])
    assert "12 of 12 completed" in outcome.out
    assert "Wrote" not in outcome.out
    assert "Wrote" in outcome.err
    assert "\x1b" not in outcome.out + outcome.err


def test_json_is_the_file_that_was_written(v4sim: Run, small_trace: Path, tmp_path: Path) -> None:
    outcome = v4sim("replay", small_trace, "-o", tmp_path / "run", "--no-report", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.out == (tmp_path / "run/result.json").read_text()


def test_nothing_is_overwritten_without_force(v4sim: Run, small_trace: Path, tmp_path: Path) -> None:
    replay = ("replay", small_trace, "-o", tmp_path / "run", "--no-report")
    assert v4sim(*replay, "--seed", "1").code == 0
    refusal = v4sim(*replay, "--seed", "2")
    assert refusal.code == 2
    assert "--force" in refusal.complaint
    assert json.loads((tmp_path / "run/result.json").read_text())["manifest"]["seed"] == 1
    assert v4sim(*replay, "--seed", "2", "--force").code == 0
    assert json.loads((tmp_path / "run/result.json").read_text())["manifest"]["seed"] == 2


def test_force_replaces_runs_and_nothing_else(v4sim: Run, small_trace: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/mine.txt").write_text("mine")
    refusal = v4sim("replay", small_trace, "-o", tmp_path / "run", "--no-report", "--force")
    assert refusal.code == 2
    assert "mine.txt" in refusal.complaint
    assert (tmp_path / "run/mine.txt").read_text() == "mine"


def test_the_same_command_gives_the_same_bytes(v4sim: Run, small_trace: Path, tmp_path: Path) -> None:
    digests = []
    for name in ("a", "b"):
        assert v4sim("replay", small_trace, "-o", tmp_path / name, "--no-report").code == 0
        files = sorted((tmp_path / name).iterdir())
        digests.append([(f.name, hashlib.sha256(f.read_bytes()).hexdigest()) for f in files])
    assert digests[0] == digests[1]


def test_stepwise_gives_the_same_calls(v4sim: Run, small_trace: Path, tmp_path: Path) -> None:
    for name, flags in (("segments", []), ("steps", ["--stepwise"])):
        assert v4sim("replay", small_trace, "-o", tmp_path / name, "--no-report", "--check", *flags).code == 0
    assert (tmp_path / "segments/calls.parquet").read_bytes() == (
        tmp_path / "steps/calls.parquet"
    ).read_bytes()


def test_a_seed_and_settings_reach_the_run(v4sim: Run, small_trace: Path, tmp_path: Path) -> None:
    flags = ["--seed", "7", "--set", "speculation.kind=mtp", "--set", "speculation.draft_tokens=1"]
    assert v4sim("replay", small_trace, "-o", tmp_path / "run", "--no-report", *flags).code == 0
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["manifest"]["seed"] == 7
    assert result["full"]["speculation"]["kind"] == "mtp"


def test_the_report_is_part_of_the_run(v4sim: Run, small_trace: Path, tmp_path: Path) -> None:
    outcome = v4sim("replay", small_trace, "-o", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    page = (tmp_path / "run/report.html").read_text()
    again = v4sim("report", tmp_path / "run", "-o", tmp_path / "again.html")
    assert again.code == 0, again.err
    assert (tmp_path / "again.html").read_text() == page


def test_presets_are_listed_and_shown(v4sim: Run) -> None:
    names = v4sim("presets").out.splitlines()
    assert len(names) >= 4
    for name in names:
        shown = v4sim("show", name.removesuffix("  (default)"))
        assert shown.code == 0, shown.err
        assert "kv" in shown.out


def test_a_trace_and_a_profile_are_shown(v4sim: Run, small_trace: Path) -> None:
    trace = v4sim("show", small_trace)
    assert trace.code == 0, trace.err
    assert "12" in trace.out
    profile = v4sim("show", "b200")
    assert profile.code == 0, profile.err
    assert "index_scan" in profile.out


def test_a_deployment_that_serves_no_call_is_no_answer(v4sim: Run, small_trace: Path, tmp_path: Path) -> None:
    """Every prompt is longer than the cache, so every call is refused: exit 1, and the run says why."""
    tiny = ["--set", "engine.kv_tokens_per_rank=1536", "--set", "engine.swa_tokens_per_rank=4096"]
    outcome = v4sim("replay", small_trace, "-o", tmp_path / "run", "--no-report", *tiny)
    assert outcome.code == 1
    assert "0 of 12 completed, 12 rejected" in outcome.out
    assert (tmp_path / "run/result.json").exists()
