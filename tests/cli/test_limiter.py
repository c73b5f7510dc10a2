"""`v4sim limiter` as a person runs it: a ranking on stdout, and the run with it where a folder is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
QUICK = ("--repeats", "1", "--only", "gpu", "--only", "swa_pool", "--window", "0%:100%")


def test_the_ranking_is_printed_and_nothing_is_written(
    v4sim: Run, small_trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    outcome = v4sim("limiter", small_trace.name, *QUICK)
    assert outcome.code == 0, outcome.err
    # Four sessions make nothing sure.
    assert "limiter: none of these alone" in outcome.out
    assert "Kernels, all of them" in outcome.out
    assert "12 calls, 3 times" in outcome.err
    assert set(tmp_path.iterdir()) == before


def test_the_run_holds_the_ranking_that_was_printed(v4sim: Run, small_trace: Path, tmp_path: Path) -> None:
    outcome = v4sim("limiter", small_trace, *QUICK, "-o", tmp_path / "run", "--json")
    assert outcome.code == 0, outcome.err
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert json.loads(outcome.out) == result["limiter"]
    assert {one["name"] for one in result["limiter"]["resources"]} == {"gpu", "swa_pool"}
    assert "What more of each resource would give" in (tmp_path / "run/report.html").read_text()


def test_without_the_ranking_it_is_the_same_run(v4sim: Run, small_trace: Path, tmp_path: Path) -> None:
    assert v4sim("limiter", small_trace, *QUICK, "-o", tmp_path / "a", "--no-report").code == 0
    assert v4sim("replay", small_trace, "-o", tmp_path / "b", "--no-report", *QUICK[-2:]).code == 0
    for name in ("calls.parquet", "timeline.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    asked, plain = (json.loads((tmp_path / run / "result.json").read_text()) for run in ("a", "b"))
    del asked["limiter"]
    assert asked == plain


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--objective", "speed"], "'speed' is not an objective; choose one of: ttft_warm_p95"),
        (["--only", "hbm"], "'hbm' is not a resource; choose from gpu"),
        (["--step", "0"], "--step"),
        (["--repeats", "0"], "--repeats"),
        (["--no-report"], "name one with -o"),
        (["--seed", "-1"], "--seed"),
    ],
)
def test_bad_questions(v4sim: Run, small_trace: Path, flags: list[str], says: str) -> None:
    outcome = v4sim("limiter", small_trace, *flags)
    assert outcome.code == 2
    assert says in outcome.complaint
    assert outcome.out == ""
