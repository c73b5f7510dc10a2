"""Reports in a real browser: no complaint, no request, nothing sticks out, no text over other text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

WIDTHS = (400, 1400)
SCHEMES = ("light", "dark")

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

# Visible elements that reach beyond the page, except inside a box that scrolls by itself.
STICKING_OUT = """
[...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && box.height && !e.closest('.scroll, .skip')
    && (box.right > document.documentElement.clientWidth + 1 || box.left < -1);
}).map(e => e.tagName + ' ' + e.textContent.trim().slice(0, 40))
"""

# Boxes that the reader would have to scroll sideways.
SCROLLING = """
[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.getAttribute('aria-label'))
"""

# Pairs of texts of one figure that lie over each other.
COLLIDING = """
[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().width).flatMap(s => {
  const texts = [...s.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  return texts.flatMap(([a, p], i) => texts.slice(i + 1)
    .filter(([b, q]) => Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1
                     && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 3)
    .map(([b, q]) => a + ' | ' + b));
})
"""

SMALLEST_TEXT = """
Math.min(...[...document.querySelectorAll('svg text')].filter(t => t.getBoundingClientRect().width)
  .map(t => parseFloat(getComputedStyle(t).fontSize) * t.ownerSVGElement.getScreenCTM().a))
"""


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["full", "wide", "bare", "compare", "backtest"])
def test_a_page_is_quiet_offline_and_fits(
    browser: Any, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    url = pages[name].as_uri()
    page = browser.open(url, width=width, scheme=scheme)
    assert page.complaints() == []
    assert page.requests() == [url]
    assert page.evaluate(OVERFLOW) == 0
    assert page.evaluate(STICKING_OUT) == []
    page.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["full", "compare", "backtest"])
def test_figures_and_tables_can_be_read(browser: Any, pages: dict[str, Path], name: str, width: int) -> None:
    page = browser.open(pages[name].as_uri(), width=width)
    assert page.evaluate(COLLIDING) == []
    assert page.evaluate(SMALLEST_TEXT) >= 9.5
    if name != "compare":
        assert page.evaluate(SCROLLING) == []
    page.close()


@pytest.mark.parametrize("width", [*WIDTHS, 1000])
@pytest.mark.parametrize("name", ["full", "wide", "backtest"])
def test_the_large_number_stands_in_one_line_and_in_its_column(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    page = browser.open(pages[name].as_uri(), width=width)
    lines, spare = page.evaluate(
        "(b => [b.getBoundingClientRect().height / parseFloat(getComputedStyle(b).fontSize),"
        " b.clientWidth - b.scrollWidth])(document.querySelector('.number b'))"
    )
    assert round(lines) == 1
    assert spare >= 0
    page.close()


def test_dark_and_light_are_two_looks_of_one_page(browser: Any, pages: dict[str, Path]) -> None:
    looks = []
    for scheme in SCHEMES:
        page = browser.open(pages["full"].as_uri(), width=1400, scheme=scheme)
        looks.append(
            page.evaluate(
                "[getComputedStyle(document.body).backgroundColor,"
                " getComputedStyle(document.querySelector('svg text')).fill]"
            )
        )
        page.close()
    assert looks == [["rgb(251, 251, 249)", "rgb(86, 99, 96)"], ["rgb(16, 22, 21)", "rgb(159, 173, 168)"]]


@pytest.mark.parametrize("width", WIDTHS)
def test_each_figure_is_seen_once(browser: Any, pages: dict[str, Path], width: int) -> None:
    page = browser.open(pages["full"].as_uri(), width=width)
    shown = "[...document.querySelectorAll('figure')].map(f => [...f.querySelectorAll('svg')]"
    shown += ".filter(s => s.getBoundingClientRect().width > 100).length)"
    assert set(page.evaluate(shown)) == {1}
    page.close()


def test_the_checks_notice_a_bad_page(browser: Any, tmp_path: Path) -> None:
    """Each measure above must be able to fail."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><body><div style='width:900px'>wide</div><div class='scroll' aria-label='t' "
        "style='overflow:auto;width:50px'><div style='width:90px'>x</div></div>"
        "<svg width='90' height='40' viewBox='0 0 90 40'><text x='1' y='20' font-size='6'>one</text>"
        "<text x='2' y='21' font-size='6'>two</text></svg>"
        "<img src='http://127.0.0.1:9/outside.png'><script>console.error('oh')</script>"
    )
    page = browser.open(bad.as_uri(), width=400)
    assert any("oh" in text for text in page.complaints())
    assert page.requests() == [bad.as_uri(), "http://127.0.0.1:9/outside.png"]
    assert page.evaluate(OVERFLOW) > 400
    assert page.evaluate(STICKING_OUT) == ["DIV wide"]
    assert page.evaluate(SCROLLING) == ["t"]
    assert page.evaluate(COLLIDING) == ["one | two"]
    assert page.evaluate(SMALLEST_TEXT) == pytest.approx(6)
    page.close()
