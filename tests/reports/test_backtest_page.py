"""The page of a backtest: every number once, marked as what it is; refused documents; nothing overwritten."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import v4reports
from v4reports.backtest import bands, error_rows
from v4sim.errors import RunError


@pytest.fixture(scope="module")
def doc() -> ModuleType:
    spec = importlib.util.spec_from_file_location("backtestdoc", Path(__file__).with_name("backtestdoc.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def written(doc: ModuleType, tmp_path: Path) -> Any:
    def write(rows: list[dict[str, Any]], **changes: Any) -> str:
        path = v4reports.backtest(doc.document(rows, **changes), tmp_path / "b.html", force=True)
        return path.read_text(encoding="utf-8")

    return write


def test_every_number_stands_with_its_error_and_interval(
    doc: ModuleType, written: Any, htmlpage: ModuleType
) -> None:
    rows = [
        doc.row("A", "ttft_ms", 110.0, 100.0, interval_80=[90.0, 130.0]),
        doc.row("B", "ttft_ms", 50.0, 100.0, interval_80=[40.0, 60.0], low=90.0),
        doc.row("C", "ttft_ms", None, 100.0, reason="no topology"),
        doc.row("D", "total_tok_s_per_gpu", 8.0, 8.0, status="fit"),
    ]
    page = htmlpage.parse(written(rows))
    calls = htmlpage.table_rows(page, "Per call")
    assert calls["A"] == ["110", "100", "+10.0 %", "90.0 to 130 holds it", "scored"]
    assert calls["B"] == [
        "50.0",
        "100 90.0 to 100",
        "−50.0 %",
        "40.0 to 60.0 misses it",
        "scored",
    ]
    assert calls["C"] == ["–", "100", "–", "–", "refused no topology"]
    assert htmlpage.table_rows(page, "Aggregate")["D"][2:] == ["inside", "–", "fit"]
    assert "Half of 4 published numbers are predicted within 12.5 %" in page.text().replace("\u00a0", " ")
    assert htmlpage.table_rows(page, "Refused") == {"no-topology": ["the topology is not stated."]}
    assert htmlpage.table_rows(page, "Assumed, because the source does not state it") == {"ep 1": ["one"]}


def test_figures_count_scored_numbers_only(doc: ModuleType) -> None:
    rows = [
        doc.row("A", "ttft_ms", 110.0, 100.0, interval_80=[90.0, 130.0]),
        doc.row("B", "ttft_ms", 50.0, 100.0, status="fit", interval_80=[1.0, 2.0]),
        doc.row("C", "ttft_ms", None, 100.0),
        doc.row("D", "tpot_ms", 90.0, 100.0, engine="sglang"),
    ]
    (ttft, tpot) = error_rows(rows)
    assert (ttft.name, tpot.name) == ("TTFT, vLLM", "TPOT, SGLang")
    assert ttft.values == pytest.approx((0.1,))
    (band,) = bands(rows)
    assert (band.predicted, band.low, band.high, band.holds) == (1.1, 0.9, 1.3, True)


def test_without_draws_the_page_says_how_to_get_intervals(doc: ModuleType, written: Any) -> None:
    assert "run the backtest with --draws" in written([doc.row("A", "ttft_ms", 1.0, 1.0)])


def test_the_page_is_offline_and_escapes_what_it_is_told(doc: ModuleType, written: Any) -> None:
    html = written([doc.row("<script>x</script>", "ttft_ms", 1.0, 1.0)])
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "http://" not in html.replace("http://www.w3.org", "")
    assert "https://" not in html


def test_the_same_document_gives_the_same_bytes(doc: ModuleType, tmp_path: Path) -> None:
    one, two = (v4reports.backtest(doc.many(), tmp_path / f"{name}.html") for name in "ab")
    assert one.read_bytes() == two.read_bytes()


def test_another_schema_and_a_file_that_is_there_are_refused(doc: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="schema_version 2"):
        v4reports.backtest(doc.document([], schema_version=2), tmp_path / "b.html")
    assert not (tmp_path / "b.html").exists()
    v4reports.backtest(doc.many(), tmp_path / "b.html")
    with pytest.raises(RunError, match="already exists"):
        v4reports.backtest(doc.many(), tmp_path / "b.html")


def test_the_command_writes_the_page_of_what_it_ran(tmp_path: Path, htmlpage: ModuleType) -> None:
    from v4sim.cli import main

    out = tmp_path / "page.html"
    assert main(["backtest", "--only", "V14-cap-TP8", "--seeds", "1", "--report", str(out)]) == 0
    page = htmlpage.parse(out.read_text(encoding="utf-8"))
    rows = htmlpage.table_rows(page, "Aggregate")
    assert list(rows) == ["V14-cap-TP8"]
    assert "kv_tokens_per_replica boot log" in page.text()
    assert main(["backtest", "--only", "V14-cap-TP8", "--report", str(out)]) == 2
