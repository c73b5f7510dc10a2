"""The report of a run that the simulator itself wrote: the two agree on names, units and what is there."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import v4reports
from v4reports import names
from v4reports.provenance import DERIVED, kinds_of_part
from v4reports.rundir import read_run
from v4sim.cli import main as v4sim
from v4sim.cost.base import KINDS, PARTS
from v4sim.eventclass import EVENT_CLASSES
from v4sim.metrics.outcomes import WAIT_REASONS
from v4sim.metrics.pools import FOLLOWED_BY
from v4traces.cli import main as v4traces
from v4traces.schema import PHASES

SETTINGS = ("--set", "speculation.kind=mtp", "--set", "speculation.draft_tokens=2")


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    trace, run = str(folder / "trace.parquet"), folder / "run"
    assert v4traces(["synth", "--sessions", "6", "--seed", "3", "--output", trace]) == 0
    assert v4sim(["replay", trace, "--output", str(run), "--sessions", "4", *SETTINGS]) == 0
    return run


@pytest.fixture(scope="module")
def real_page(real_run: Path, htmlpage: ModuleType) -> Any:
    return htmlpage.parse((real_run / "report.html").read_text(encoding="utf-8"))


def test_every_name_of_the_simulator_has_a_word_on_the_page() -> None:
    for table, used in (
        (names.EVENT_CLASSES, EVENT_CLASSES),
        (names.EVENT_CLASS_MEANING, EVENT_CLASSES),
        (names.PARTS, PARTS),
        (names.KINDS, KINDS),
        (names.REASONS, WAIT_REASONS),
        (names.POOLS, FOLLOWED_BY),
        (names.PHASES, PHASES),
    ):
        assert set(used) <= set(table)


def test_nothing_that_the_run_knows_is_absent(real_page: Any) -> None:
    absent = [e.text() for e in real_page.walk() if e.attributes.get("class") == "absent"]
    reasons = [text for text in absent if "Nothing: no call" not in text]  # nothing waited: no figure
    assert reasons == []


def test_the_page_shows_the_numbers_of_the_result(
    real_run: Path, real_page: Any, htmlpage: ModuleType
) -> None:
    result = json.loads((real_run / "result.json").read_text())
    calls = htmlpage.table_rows(real_page, "What became of the calls")
    assert calls["Completed"][1] == f"{result['full']['calls']['completed']:,}"
    tiers = htmlpage.table_rows(real_page, "Prompt tokens by tier, steady window")
    tokens = result["steady"]["tokens"]
    assert tiers["Computed"][1] == f"{tokens['computed'] / tokens['prompt'] * 100:.1f} %"
    assert real_page.all("h1")[0].text() == result["headline"]["sentence"]
    assert htmlpage.table_rows(real_page, "Draft tokens accepted by position, whole run")


def test_every_part_says_what_it_rests_on(real_run: Path) -> None:
    run = read_run(real_run)
    used = {part for parts in run.full.parts_by_kind_s.values() for part, s in parts.items() if s > 0}
    assert {part for part in used - DERIVED if not kinds_of_part(run, part)} == set()
    assert len(used) > 8


def test_where_a_run_lies_does_not_show_in_its_report(real_run: Path, tmp_path: Path) -> None:
    """The run writer renders in a hidden directory of another name; the bytes must be the same."""
    again = v4reports.render(real_run, tmp_path / "again.html")
    assert again.read_bytes() == (real_run / "report.html").read_bytes()
    assert str(real_run.parent) not in again.read_text(encoding="utf-8")
