"""Two runs side by side: differences of B against A, and a warning when the inputs differ."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import v4reports
from v4reports.compare import verdict
from v4sim.errors import RunError


@pytest.fixture
def other(runbuilder: ModuleType, tmp_path: Path) -> Path:
    def change(result: dict[str, Any]) -> None:
        result["manifest"]["deployment"]["name"] = "8xB200 V4-Flash DP8 vllm"
        result["manifest"]["deployment"]["engine"]["kind"] = "vllm"
        steady = result["steady"]
        steady["ttft_ms"]["resume_tool"]["p95"] *= 2
        steady["ttft_ms"]["resume_tool"]["p95_ci"] = [1e6, 2e6]
        steady["cost"]["amortised_per_task"] /= 2
        steady["throughput"]["output_tokens_per_s"] *= 1.5
        steady["parts_by_kind_s"]["decode"]["moe"] *= 3
        steady.pop("tpot_ms")

    path: Path = runbuilder.build(tmp_path / "other", change=change)
    return path


def test_better_and_worse_follow_from_the_quantity(run_dir: Path, other: Path, htmlpage: ModuleType) -> None:
    path = v4reports.compare(run_dir, other)
    assert path == other / "compare.html"
    page = htmlpage.parse(path.read_text(encoding="utf-8"))
    rows = htmlpage.table_rows(page, "Results, steady windows")
    assert rows["TTFT, resume after tool, p95"][2] == "+100.0 % worse"
    assert rows["Cost per task, amortised"][2] == "−50.0 % better"
    assert rows["Output tokens per second"][2] == "+50.0 % better"
    assert rows["Hit ratio"][2] == "±0 % same"
    assert rows["TPOT, p95"][1:] == ["–", "–"]
    assert "Cost per successful task" not in rows
    parts = htmlpage.table_rows(page, "Time of a step by part, steady windows")
    assert parts["Decode: MoE GEMM"][2] == "+200.0 %"
    ttft = htmlpage.table_rows(page, "Time to first token, steady windows")
    assert ttft["Resume after tool"][-1] == "apart"
    assert ttft["All calls"][-1] == "overlap"
    assert ttft["Cold start"][-1] == "–"


def test_inputs_that_differ_are_listed_and_no_others(
    run_dir: Path, other: Path, htmlpage: ModuleType
) -> None:
    page = htmlpage.parse(v4reports.compare(run_dir, other).read_text(encoding="utf-8"))
    rows = htmlpage.table_rows(page, "Inputs that differ")
    assert rows == {
        "deployment.name": ["4xB200 V4-Flash DPA4+EP4 sglang", "8xB200 V4-Flash DP8 vllm"],
        "deployment.engine.kind": ["sglang", "vllm"],
    }
    assert not [e for e in page.walk() if "alert" in e.attributes.get("class", "").split()]


def test_runs_of_different_traces_are_not_compared_unawares(
    run_dir: Path, runbuilder: ModuleType, tmp_path: Path
) -> None:
    strange = runbuilder.build(
        tmp_path / "strange", seed=8, change=lambda result: result["manifest"].update(trace={"name": "else"})
    )
    html = v4reports.compare(run_dir, strange).read_text(encoding="utf-8")
    assert "The traces differ." in html
    assert "steady windows differ" not in html
    assert "The seeds differ." in html


def test_a_run_against_itself_changes_nothing(run_dir: Path, htmlpage: ModuleType, tmp_path: Path) -> None:
    page = htmlpage.parse(
        v4reports.compare(run_dir, run_dir, tmp_path / "c.html").read_text(encoding="utf-8")
    )
    assert "0 better, 0 worse" in page.text()
    assert "The manifests are the same." in page.text()


def test_a_comparison_is_not_overwritten_unasked(run_dir: Path, other: Path) -> None:
    v4reports.compare(run_dir, other)
    with pytest.raises(RunError, match=r"compare\.html already exists"):
        v4reports.compare(run_dir, other)
    v4reports.compare(run_dir, other, force=True)


@given(st.floats(-0.99, 10.0))
def test_lower_and_higher_are_opposites(ratio: float) -> None:
    pair = {verdict(ratio, "lower"), verdict(ratio, "higher")}
    assert pair in ({"same"}, {"better", "worse"})


def test_windows_of_unlike_length_are_said(run_dir: Path, runbuilder: ModuleType, tmp_path: Path) -> None:
    short = runbuilder.build(tmp_path / "short", change=lambda result: result["window"].update(end_s=600.0))
    html = v4reports.compare(run_dir, short).read_text(encoding="utf-8").replace("\u00a0", " ")
    assert "The steady windows differ in length: 23.0 min and 6.00 min." in html
