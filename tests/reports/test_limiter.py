"""The ranking of `v4sim limiter` in the report: said first, shown whole, absent where nobody asked."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import v4reports
from v4reports.jsonview import View
from v4reports.limiter import read_limiter

CAPTION = "One resource larger at a time"


def page(runbuilder: ModuleType, htmlpage: ModuleType, folder: Path, entry: dict[str, Any] | None) -> Any:
    run_dir = runbuilder.build(folder / "run", change=lambda result: result.update(limiter=entry))
    return htmlpage.parse(v4reports.render(run_dir).read_text(encoding="utf-8"))


def test_the_limiter_stands_first_among_what_limits(full_page: Any) -> None:
    said = full_page.text().replace("\u00a0", " ")
    limits = said[said.index("What limits") : said.index("What to try next")]
    assert limits.index("KV pool") < limits.index("Calls spend 43 %")
    assert "goes from 2.00 s to 1.50 s" in limits


def test_the_table_has_every_resource_and_says_what_is_sure(full_page: Any, htmlpage: ModuleType) -> None:
    rows = htmlpage.table_rows(full_page, CAPTION)
    assert list(rows) == [
        "As it is",
        "KV pool",
        "Request slots",
        "Prefill tokens of a step",
    ]
    cells = rows["KV pool"]
    assert cells == ["+25.0 % sure", "1.50 s −600 to −450 ms", "99.5 %"]
    assert rows["Request slots"] == ["±0 %", "2.00 s", "–"]
    assert "Not asked: Sliding-window pool: there is none <here>" in full_page.text()


def test_without_a_sure_one_none_is_named(
    runbuilder: ModuleType, htmlpage: ModuleType, tmp_path: Path
) -> None:
    said = page(runbuilder, htmlpage, tmp_path, runbuilder.draw_limiter(sure=False)).text()
    assert "No single resource" in said
    assert "the best guess is “KV pool”" in said
    assert "helps most" not in said
    assert "The p95 of 20 calls a draw is the word of 1 of them." in said


def test_a_run_that_nobody_asked_has_no_such_section(
    runbuilder: ModuleType, htmlpage: ModuleType, tmp_path: Path
) -> None:
    plain = page(runbuilder, htmlpage, tmp_path, None)
    assert CAPTION not in plain.text()
    assert "limiter" not in [section.attributes.get("id") for section in plain.all("section")]


def test_rates_and_calls_that_were_not_served_have_words(runbuilder: ModuleType) -> None:
    entry = runbuilder.draw_limiter() | {"unit": "calls/s", "value": None}
    found = read_limiter(View(entry, "result.json"))
    assert found is not None
    assert found.shown(found.value) == "not served"
    assert found.shown(1.25) == "1.25\u00a0calls/s"
