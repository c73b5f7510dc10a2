"""How much each key quantity changed from one run to another: bars left and right of zero.

Length is the relative change; whether that is better or worse is said in a word, because for some
quantities more is better and for others less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import SMALL_PX, WIDTH, C, Canvas, grid_x, nice_ticks
from v4reports.numbers import signed_percent

SLUG = "change"
TITLE = "Change from A to B"
ROW_PX = 26
CLIP = 2.0  # a change beyond ±200 % is drawn to the edge and its number stands beside it


@dataclass(frozen=True, slots=True)
class Change:
    name: str
    ratio: float  # B ÷ A − 1
    verdict: str  # better, worse, same; a word beside the number


def draw_changes(changes: Sequence[Change]) -> Chart | Absent:
    if not changes:
        return Absent(SLUG, TITLE, "The runs share no quantity that could be compared.")
    caption = (
        "Relative to run A. Better and worse follow from what the quantity is; small changes may be noise."
    )
    words = in_words(changes)
    narrow, wide = (
        draw_bars_of(changes, slug=slug, title=TITLE, width=width, words=words, css_class=css_class)
        for slug, width, css_class in ((SLUG, WIDTH, "narrow"), (SLUG + "-wide", 700, "wide"))
    )
    return Chart(SLUG, TITLE, caption, narrow, wide)


def in_words(changes: Sequence[Change]) -> str:
    """The figure for those who cannot see it."""
    said = [", ".join(filter(None, (signed_percent(one.ratio), one.verdict))) for one in changes]
    return "; ".join(f"{one.name}: {text}" for one, text in zip(changes, said, strict=True))


def draw_bars_of(
    changes: Sequence[Change], *, slug: str, title: str, width: float, words: str, css_class: str = ""
) -> str:
    """An SVG with a bar for each change, left or right of zero."""
    left, right, top, bottom = 178.0, 122.0, 4.0, 26.0
    canvas = Canvas(top + bottom + ROW_PX * len(changes), width)
    axes = canvas.axes(left, top, right, bottom)
    most = min(max(0.02, *(abs(change.ratio) for change in changes)), CLIP)
    lengths = [max(min(change.ratio, most), -most) for change in changes]
    reach = max(tick for tick in nice_ticks(most, at_most=2) if tick <= most)
    ticks = (-reach, 0.0, reach)
    axes.set_xlim(-most * 1.02, most * 1.02)
    axes.set_ylim(len(changes) - 0.5, -0.5)
    grid_x(axes, ticks, [signed_percent(tick, decimals=0) for tick in ticks])
    axes.axvline(0, color=C.muted, linewidth=1)
    colours = {"better": C.s1, "sure": C.s1, "worse": C.s2}
    axes.hlines(
        range(len(changes)),
        0,
        lengths,
        colors=[colours.get(change.verdict, C.s5) for change in changes],
        linewidth=12,
    )
    for y, change in enumerate(changes):
        where = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
        axes.annotate(change.name, (0, y), (2 - left, 0), ha="left", **where)
        axes.annotate(signed_percent(change.ratio), (1, y), (72, 0), ha="right", **where)
        axes.annotate(
            change.verdict, (1, y), (right - 2, 0), ha="right", color=C.muted, fontsize=SMALL_PX, **where
        )
    return canvas.svg(slug=slug, title=title, description=words, css_class=css_class)
