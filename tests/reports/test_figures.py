"""Figures: small, repeatable, coloured by the page, named for those who cannot see them, or absent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4reports import figures
from v4reports.figures import Absent, Chart
from v4reports.figures.canvas import Canvas, house_style, log_ticks, nice_ticks, spread
from v4reports.figures.svg import TOKENS
from v4reports.run import Run
from v4reports.rundir import read_run
from v4sim.errors import RunError

DRAWN_BY_A_FULL_RUN = sorted(set(figures.FIGURES) - {"parts-mixed"})


@pytest.fixture
def run(run_dir: Path) -> Run:
    return read_run(run_dir)


@pytest.fixture
def styled() -> Iterator[None]:
    with house_style():
        yield


@pytest.mark.usefixtures("styled")
@pytest.mark.parametrize("name", DRAWN_BY_A_FULL_RUN)
def test_a_full_run_has_this_figure(run: Run, name: str) -> None:
    chart = figures.draw(name, run)
    assert isinstance(chart, Chart)
    assert chart.slug == name
    assert chart.caption.endswith(".")
    for svg in filter(None, (chart.svg, chart.wide_svg)):
        assert len(svg) < 24_000
        assert re.search(r"#[0-9a-f]{6}\b", svg) is None, "a colour that the page cannot change"
        assert set(re.findall(r"var\(--(\w+)\)", svg)) <= set(TOKENS)
        assert "<style" not in svg
        assert "font-family" not in svg
        title = re.search(r'aria-labelledby="([\w-]+) ([\w-]+)"', svg)
        assert title is not None
        assert f'<title id="{title[1]}">' in svg
        assert re.search(rf'<desc id="{title[2]}">[^<]+</desc>', svg)


@pytest.mark.usefixtures("styled")
def test_ids_are_unique_over_all_figures(run: Run) -> None:
    drawn = [figures.draw(name, run) for name in figures.FIGURES]
    svgs = "".join(chart.svg + chart.wide_svg for chart in drawn if isinstance(chart, Chart))
    ids = re.findall(r' id="([^"]+)"', svgs)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', svgs)) <= set(ids)


def test_figures_repeat_byte_for_byte_whatever_the_users_settings(run: Run) -> None:
    import matplotlib

    def draw_all() -> list[Any]:
        with house_style():
            return [figures.draw(name, run) for name in figures.FIGURES]

    first = draw_all()
    with matplotlib.rc_context({"font.weight": "bold", "path.sketch": (1, 100, 2), "text.usetex": True}):
        assert draw_all() == first


ABSENT = {
    "limiter": lambda result: result.pop("limiter"),
    "ttft": lambda result: result["steady"].pop("ttft_ms"),
    "itl": lambda result: [
        result["steady"].pop(key) for key in ("itl_burst_ms", "itl_ms", "tpot_ms", "step_ms")
    ],
    "load": lambda result: result.pop("series"),
    "pools": lambda result: result["full"].pop("pools"),
    "cost": lambda result: result["steady"]["cost"].pop("amortised_per_task"),
    "parts-decode": lambda result: result["steady"].pop("parts_by_kind_s"),
    "parts-prefill": lambda result: result["steady"]["parts_by_kind_s"].update(prefill={}),
    "parts-mixed": lambda result: None,
    "ranks": lambda result: result["steady"].pop("ranks"),
    "blocked": lambda result: result["steady"].update(blocked={"kv": {"calls": 0, "time_s": 0.0}}),
    "speculation": lambda result: result["steady"]["speculation"].update(kind="off"),
}


@pytest.mark.usefixtures("styled")
@pytest.mark.parametrize("name", sorted(ABSENT))
def test_what_a_run_does_not_know_is_absent_with_a_reason(
    runbuilder: ModuleType, tmp_path: Path, name: str
) -> None:
    change: Callable[[dict[str, Any]], Any] = ABSENT[name]
    found = figures.draw(name, read_run(runbuilder.build(tmp_path / "run", change=change)))
    assert isinstance(found, Absent)
    assert found.reason.endswith(".")


@pytest.mark.usefixtures("styled")
@pytest.mark.parametrize("name", ["hits", "waits"])
def test_without_calls_their_figures_are_absent(run_dir: Path, name: str) -> None:
    (run_dir / "calls.parquet").unlink()
    assert isinstance(figures.draw(name, read_run(run_dir)), Absent)


def test_every_figure_has_a_case_without_data() -> None:
    assert set(ABSENT) | {"hits", "waits"} == set(figures.FIGURES)


def test_an_unknown_figure_lists_the_choices(run: Run) -> None:
    with pytest.raises(RunError, match="there is no figure 'pie'; choose one of: ttft, waits"):
        figures.draw("pie", run)


@pytest.mark.usefixtures("styled")
def test_text_in_a_figure_stays_text() -> None:
    canvas = Canvas(40)
    hostile = '<script>alert("$x$")</script> & id="a" 漢 #fe0000'
    canvas.axes(0, 0, 0, 0).annotate(hostile, (0, 0))
    svg = canvas.svg(slug="s", title="<b>", description='"><script>')
    assert "<script" not in svg
    assert "&lt;script&gt;alert" in svg
    assert "$x$" in svg  # a dollar is no formula
    assert "#fe0000" in svg
    assert '<title id="s-t">&lt;b&gt;</title>' in svg


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.01, 0.12))
def test_labels_moved_apart_keep_order_and_distance(positions: list[float], gap: float) -> None:
    placed = spread(positions, gap, 0.0, 1.0)
    order = sorted(range(len(positions)), key=lambda i: (positions[i], i))
    ascending = [placed[i] for i in order]
    assert all(b - a >= gap - 1e-9 for a, b in pairwise(ascending))
    assert ascending[-1] <= 1.0 + 1e-9


@given(st.floats(1e-3, 1e9), st.integers(2, 8))
def test_ticks_cover_the_range(top: float, at_most: int) -> None:
    ticks = nice_ticks(top, at_most)
    assert ticks[0] == 0
    assert ticks[-1] >= top * (1 - 1e-9)
    assert len(ticks) <= at_most + 1


@given(st.floats(1e-3, 1e6), st.floats(4, 1e6))
def test_log_ticks_lie_inside_and_are_enough(low: float, ratio: float) -> None:
    ticks = log_ticks(low, low * ratio)
    assert 2 <= len(ticks) <= 9
    assert all(low * (1 - 1e-6) <= tick <= low * ratio * (1 + 1e-6) for tick in ticks)


@pytest.mark.usefixtures("styled")
def test_waits_begin_with_the_host(runbuilder: ModuleType, tmp_path: Path) -> None:
    """From sending to reaching the replica is host time: part of the first token's, and of no queue."""
    run_dir = runbuilder.build(tmp_path / "run")
    table = pq.read_table(run_dir / "calls.parquet")
    place = table.schema.names.index("sent_ns")
    early = pa.array([value - 500_000_000_000 for value in table.column("sent_ns").to_pylist()])
    waits = [figures.draw("waits", read_run(run_dir))]
    pq.write_table(table.set_column(place, "sent_ns", early), run_dir / "calls.parquet")
    result = json.loads((run_dir / "result.json").read_text())
    result["window"].update(start_s=-1e6, end_s=1e6)
    (run_dir / "result.json").write_text(json.dumps(result))
    waits.append(figures.draw("waits", read_run(run_dir)))
    captions = [chart.caption for chart in waits if isinstance(chart, Chart)]
    assert len(captions) == 2
    assert "for the host" not in captions[0]
    assert captions[1].endswith("the largest part of it for the host, which prepares the prompt.")
