"""What the tables say: the run's numbers, in their units, and nothing that the run does not know."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import v4reports
from v4reports.sections.base import sentence

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def page_of(
    runbuilder: ModuleType, htmlpage: ModuleType, full_page: Any, tmp_path: Path
) -> Callable[[Change | None], Any]:
    def build(change: Change | None = None) -> Any:
        if change is None:
            return full_page
        run_dir = runbuilder.build(tmp_path / "run", change=change)
        return htmlpage.parse(v4reports.render(run_dir, force=True).read_text(encoding="utf-8"))

    return build


def result(run_dir: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((run_dir / "result.json").read_text())
    return loaded


def captions(page: Any) -> list[str]:
    return [table.all("caption")[0].text() for table in page.all("table")]


def test_first_token_times_are_those_of_the_run(
    run_dir: Path, htmlpage: ModuleType, page_of: Callable[[Change | None], Any]
) -> None:
    cold = result(run_dir)["steady"]["ttft_ms"]["cold"]
    rows = htmlpage.table_rows(page_of(None), "Time to first token by event class, steady window")
    assert list(rows)[:3] == ["All calls", "Resume after tool", "Resume after user"]
    assert rows["Cold start"][:2] == [str(cold["count"]), f"{cold['p50'] / 1e3:.3g}"]
    assert rows["Cold start"][3] == f"over {cold['p95'] / 1e3:.3g}"  # a word, not only a colour
    assert not rows["Resume after user"][3].startswith("over")


def test_all_calls_fast_are_shown_in_milliseconds(
    htmlpage: ModuleType, page_of: Callable[[Change | None], Any]
) -> None:
    def speed_up(result: dict[str, Any]) -> None:
        for dist in result["steady"]["ttft_ms"].values():
            for key in ("mean", "min", "max", "p50", "p90", "p95", "p99"):
                dist[key] /= 100
            dist.pop("p50_ci", None)
            dist.pop("p95_ci", None)

    page = page_of(speed_up)
    table = next(t for t in page.all("table") if "Time to first token by event class" in t.text())
    assert [th.text() for th in table.all("thead")[0].all("th")][2:] == [
        "p50 ms",
        "p90 ms",
        "p95 ms",
        "p99 ms",
    ]


def test_resume_is_counted_from_each_moment_the_run_knows(
    htmlpage: ModuleType, page_of: Callable[[Change | None], Any]
) -> None:
    caption = "Resume after a tool: time to first token, counted from"
    assert caption not in captions(page_of(None))

    def add(result: dict[str, Any]) -> None:
        ttft = result["steady"]["ttft_ms"]
        ttft["resume_tool_from_return"] = {**ttft["resume_tool"], "count": 11}

    page = page_of(add)
    rows = htmlpage.table_rows(page, caption)
    assert list(rows) == ["From sending", "From the tool's return"]
    assert rows["From the tool's return"][0] == "11"
    by_class = htmlpage.table_rows(page, "Time to first token by event class, steady window")
    assert "Resume tool from return" not in by_class


def test_cost_per_successful_task_is_absent_when_unknown(
    htmlpage: ModuleType, page_of: Callable[[Change | None], Any]
) -> None:
    page = page_of(None)
    rows = htmlpage.table_rows(page, "Tasks, steady window")
    assert "Cost per successful task" not in rows
    assert "Cost per successful task is not known" in page.text()

    def know(result: dict[str, Any]) -> None:
        result["steady"]["cost"]["per_successful_task"] = 0.3334

    page = page_of(know)
    assert htmlpage.table_rows(page, "Tasks, steady window")["Cost per successful task"] == ["$0.333"]
    assert "is not known" not in page.text()

    def none_succeeded(result: dict[str, Any]) -> None:
        result["steady"]["tasks"]["successful"] = 0

    assert "No task of the steady window succeeded" in page_of(none_succeeded).text()


def test_tier_tokens_are_shown_to_sum_to_the_prompt(
    run_dir: Path, htmlpage: ModuleType, page_of: Callable[[Change | None], Any]
) -> None:
    tokens = result(run_dir)["steady"]["tokens"]
    rows = htmlpage.table_rows(page_of(None), "Prompt tokens by tier, steady window")
    shares = [
        float(rows[name][1].split()[0]) for name in ("Device hit", "Host hit", "Storage hit", "Computed")
    ]
    assert sum(shares) == pytest.approx(100, abs=0.25)
    assert rows["Computed"][1] == f"{tokens['computed'] / tokens['prompt'] * 100:.1f} %"


def test_parts_carry_what_they_rest_on(htmlpage: ModuleType, page_of: Callable[[Change | None], Any]) -> None:
    def unstated(result: dict[str, Any]) -> None:
        result["provenance"] = [p for p in result["provenance"] if p["op"] not in ("cpu", "mhc")]
        result["provenance"].append({"op": "mhc.sglang.v4-flash", "kind": "roofline"})
        result["provenance"].append({"op": "any", "kind": "measured", "parts": ["mhc", "hca"]})

    rows = htmlpage.table_rows(page_of(unstated), "Step time by part, steady window")
    assert rows["MoE GEMM"][0].startswith("22.0 %")
    assert rows["MoE GEMM"][1].startswith("29.0 %")
    assert rows["MoE GEMM"][-1] == "published"
    assert rows["Compressor"][-1] == "roofline"
    assert rows["mHC"][-1] == "measured + roofline"
    assert rows["HCA"][-1] == "measured + published"
    assert rows["CPU"][-1] == "not stated"


def test_domain_warnings_are_announced_at_the_top(page_of: Callable[[Change | None], Any]) -> None:
    page = page_of(None)
    alert = next(e for e in page.all("a") if e.attributes.get("class") == "alert")
    assert alert.text() == "1 domain warning"
    assert "index_scan: contexts up to 812,000 tokens" in page.text()
    quiet = page_of(lambda result: result.update(domain_warnings=[]))
    assert not [e for e in quiet.all("a") if e.attributes.get("class") == "alert"]


def test_completed_of_total_is_always_said(page_of: Callable[[Change | None], Any]) -> None:
    tally = next(e for e in page_of(None).walk() if e.attributes.get("class") == "tally").text()
    assert tally.startswith("399 of 400 calls completed 1 aborted")
    assert "rejected" not in tally


@pytest.mark.parametrize(
    ("number", "unit", "shown"),
    [
        (1.8442, "s to first token, p95", "1.84 s to first token, p95"),
        (0.0421, "$ per task", "$0.0421 per task"),
        (93.21, "% of the objective", "93.2 % of the objective"),
        (32, "sessions", "32.0 sessions"),
        (51234, "output tokens/s", "51.2 k output tokens/s"),
    ],
)
def test_the_headline_number_has_its_unit(
    page_of: Callable[[Change | None], Any], number: float, unit: str, shown: str
) -> None:
    page = page_of(lambda result: result["headline"].update(number=number, unit=unit))
    assert next(e for e in page.walk() if e.attributes.get("class") == "number").text() == shown


def test_many_ranks_fold_their_table(runbuilder: ModuleType, htmlpage: ModuleType, tmp_path: Path) -> None:
    run_dir = runbuilder.build(tmp_path / "run", num_ranks=32, num_calls=600)
    page = htmlpage.parse(v4reports.render(run_dir).read_text(encoding="utf-8"))
    folded = [d for d in page.all("details") if "each rank" in d.text()]
    assert len(folded) == 1
    assert len(htmlpage.table_rows(folded[0], "Time and tokens of each rank, steady window")) == 32
    assert "The 16 busiest are drawn" in page.text()


def test_every_key_of_the_manifest_is_on_the_page(
    htmlpage: ModuleType, page_of: Callable[[Change | None], Any]
) -> None:
    page = page_of(None)
    manifest = htmlpage.table_rows(page, "Manifest: the same inputs give the same bytes")
    assert manifest["trace.sha256"] == ["3f" * 32]
    assert manifest["seed"] == ["7"]
    deployment = htmlpage.table_rows(page, "Deployment, every option")
    assert deployment["speculation.draft_tokens"] == ["3"]


def test_what_covers_the_whole_run_is_not_called_steady(
    htmlpage: ModuleType, page_of: Callable[[Change | None], Any]
) -> None:
    """An engine that counts steps for the whole run only says so, and so does the page."""
    caption = "Step time by part, {}"
    assert caption.format("steady window") in captions(page_of(None))

    def whole(result: dict[str, Any]) -> None:
        result["window"] |= {"engine_start_s": 0.0, "engine_end_s": 1800.0}

    page = page_of(whole)
    assert caption.format("whole run") in captions(page)
    assert "Time between tokens" in captions(page)
    assert "sums are kept (whole run)" in page.text()
    assert "a value per call (steady window)" in page.text()

    def epochs(result: dict[str, Any]) -> None:
        result["window"] |= {"engine_start_s": 236.0, "engine_end_s": 1624.0}

    assert caption.format("steady window") in captions(page_of(epochs))

    def coarse(result: dict[str, Any]) -> None:
        result["window"] |= {"engine_start_s": 600.0, "engine_end_s": 1200.0}

    assert caption.format("10.0 min to 20.0 min") in captions(page_of(coarse))


def test_a_long_drain_does_not_squeeze_the_window(page_of: Callable[[Change | None], Any]) -> None:
    """One person who comes back days later must not turn every figure over time into a spike."""

    def drain(result: dict[str, Any]) -> None:
        result["series"]["t_ns"].append(round(300_000 * 1e9))
        for name in ("kv_used", "kv_resident", "swa_used", "running", "queued"):
            result["series"][name].append([0] * 4)

    page = page_of(drain)
    load = next(f for f in page.all("figure") if f.attributes["id"] == "figure-load")
    assert "Drawn around the steady window; the run ends at 3.47 days." in load.text()
    ticks = [text.text() for text in load.all("text")]
    assert "20 min" in ticks
    assert not any(tick.endswith(" h") for tick in ticks)


def test_sentences_begin_in_upper_case_but_names_stay() -> None:
    assert sentence("give it more memory") == "Give it more memory."
    assert sentence("index_scan: beyond its table.") == "index_scan: beyond its table."
    assert sentence("24% of prompt tokens") == "24\u00a0% of prompt tokens."


@pytest.mark.parametrize(("form", "key"), [("divided", "itl_ms"), ("burst", "itl_burst_ms")])
def test_the_latency_section_names_its_token_times_as_the_head_does(
    page_of: Callable[[Change | None], Any], run_dir: Path, form: str, key: str
) -> None:
    steady = result(run_dir)["steady"]
    page = page_of(lambda result: result["manifest"]["deployment"]["objective"].update(itl_form=form))
    said = " ".join(page.text().split())
    assert f"a token every {steady['tpot_ms']['p50']:.3g} ms or faster (median TPOT)" in said
    assert f"which the objective judges): p95 {steady[key]['p95']:.3g} ms" in said


def test_stale_tokens_are_shown_where_there_are_any(
    htmlpage: ModuleType, page_of: Callable[[Change | None], Any]
) -> None:
    caption = "Hits against an infinite cache, steady window"
    assert not [name for name in htmlpage.table_rows(page_of(None), caption) if name.startswith("Equal, but")]
    page = page_of(
        lambda result: result["steady"]["hit"].update(stale_tokens=41_200, stale_served_tokens=1_200)
    )
    rows = htmlpage.table_rows(page, caption)
    name = next(name for name in rows if name.startswith("Equal, but"))
    assert rows[name] == ["41.2 k"]
    assert "1.20 k were served, as cache.identity decides" in page.text().replace("\u00a0", " ")


def test_hits_above_the_bound_are_explained(page_of: Callable[[Change | None], Any]) -> None:
    page = page_of(lambda result: result["steady"]["hit"].update(token_ratio=0.845, bound_ratio=0.843))
    said = page.text().replace("\u00a0", " ")
    assert "84.5 % of prompt tokens were served from cache, outputs that came back included" in said
    assert "an infinite cache would have served" not in said


def test_a_missed_objective_stands_out_at_the_head(page_of: Callable[[Change | None], Any]) -> None:
    def slow(result: dict[str, Any]) -> None:
        result["steady"]["ttft_ms"]["all"]["p95"] = 12_500.0
        result["manifest"]["deployment"]["objective"] = {"ttft_p95_s": 10.0, "itl_p95_ms": 1e6}

    def alerts(page: Any) -> list[str]:
        links = [link for link in page.all("a") if link.attributes.get("class") == "alert"]
        return [link.text().replace("\u00a0", " ") for link in links]

    assert "First token: p95 12.5 s, the objective is 10 s" in alerts(page_of(slow))

    def fast(result: dict[str, Any]) -> None:
        result["manifest"]["deployment"]["objective"] = {"ttft_p95_s": 1e4, "itl_p95_ms": 1e6}

    assert not [text for text in alerts(page_of(fast)) if "objective" in text]
