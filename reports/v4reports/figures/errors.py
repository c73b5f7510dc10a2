"""How far predictions are from published measurements: every number a dot, and the intervals around them.

Errors are relative, zero inside the published range. A row is a kind of quantity and an engine; the tick is
the median, the number at the right the median size. Intervals are drawn as shares of the published value,
sorted, so that a calibrated set crosses the line at 100 % four times in five.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import SMALL_PX, WIDTH, C, Canvas, grid_x
from v4reports.numbers import percent, signed_percent

ROW_PX = 34
CLIP = 1.0  # an error beyond ±100 % is drawn at the edge
LINE_PX = 7


@dataclass(frozen=True, slots=True)
class Errors:
    """Signed errors of one kind of quantity on one engine."""

    name: str
    values: tuple[float, ...]

    @property
    def size(self) -> float:
        return median(abs(value) for value in self.values)


@dataclass(frozen=True, slots=True)
class Band:
    """A prediction and its 80 % interval, as shares of the published value."""

    predicted: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        return self.low <= 1.0 <= self.high


def draw_errors(rows: Sequence[Errors]) -> Chart | Absent:
    slug, title = "errors", "Error of every scored number"
    if not rows:
        return Absent(slug, title, "No number of this backtest is scored.")
    caption = (
        "Predicted against published, relative; zero inside the published range. A dot is one number, the "
        "tick the median; at the right the median size of the error and how many numbers there are."
    )
    words = "; ".join(
        f"{row.name}: {len(row.values)} numbers from {signed_percent(min(row.values))} to "
        f"{signed_percent(max(row.values))}, median size {percent(row.size)}"
        for row in rows
    )
    narrow, wide = (
        _strips(rows, slug=slug + suffix, title=title, width=width, words=words, css_class=css_class)
        for suffix, width, css_class in (("", WIDTH, "narrow"), ("-wide", 700, "wide"))
    )
    return Chart(slug, title, caption, narrow, wide)


def _strips(
    rows: Sequence[Errors], *, slug: str, title: str, width: float, words: str, css_class: str
) -> str:
    left, right, top, bottom = 142.0, 96.0, 4.0, 26.0
    canvas = Canvas(top + bottom + ROW_PX * len(rows), width)
    axes = canvas.axes(left, top, right, bottom)
    reach = min(max(0.25, *(abs(value) for row in rows for value in row.values)), CLIP)
    tick = 0.5 if reach > 0.5 else 0.2
    axes.set_xlim(-reach * 1.04, reach * 1.04)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    grid_x(axes, (-tick, 0.0, tick), [signed_percent(at, decimals=0) for at in (-tick, 0.0, tick)])
    axes.axvline(0, color=C.muted, linewidth=1)
    for y, row in enumerate(rows):
        shown = [max(min(value, reach), -reach) for value in row.values]
        axes.scatter(shown, [y] * len(shown), s=34, facecolors="none", edgecolors=C.s1, linewidths=1.4)
        axes.vlines(median(shown), y - 0.34, y + 0.34, colors=C.ink, linewidth=2)
        where = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
        axes.annotate(row.name, (0, y), (2 - left, 0), ha="left", **where)
        axes.annotate(percent(row.size), (1, y), (54, 0), ha="right", **where)
        axes.annotate(
            str(len(row.values)),
            (1, y),
            (right - 6, 0),
            ha="right",
            color=C.muted,
            fontsize=SMALL_PX,
            **where,
        )
    return canvas.svg(slug=slug, title=title, description=words, css_class=css_class)


def draw_intervals(bands: Sequence[Band]) -> Chart | Absent:
    slug, title = "intervals", "80 % intervals"
    if not bands:
        reason = "No intervals were drawn: run the backtest with --draws, for example 20."
        return Absent(slug, title, reason)
    ordered = sorted(bands, key=lambda band: (band.predicted, band.low, band.high))
    inside = sum(band.holds for band in ordered)
    caption = (
        "Each line is a number: from the 10th to the 90th percentile of what plausible worlds predict, as a "
        "share of the published value; the dot is the prediction. Lines that miss 100 % are thin."
    )
    words = f"{inside} of {len(ordered)} intervals hold the published value."
    left, right, top, bottom = 16.0, 16.0, 6.0, 26.0
    canvas = Canvas(top + bottom + LINE_PX * len(ordered), WIDTH)
    axes = canvas.axes(left, top, right, bottom)
    low = max(min(0.5, *(band.low for band in ordered)), 0.0)
    high = min(max(1.5, *(band.high for band in ordered)), 2.5)
    axes.set_xlim(low * 0.98, high * 1.02)
    axes.set_ylim(len(ordered) - 0.5, -0.5)
    grid_x(axes, (0.5, 1.0, 1.5), ("50 %", "100 %, published", "150 %"))
    axes.axvline(1, color=C.ink, linewidth=1)
    for y, band in enumerate(ordered):
        axes.hlines(
            y,
            band.low,
            min(band.high, high),
            colors=C.s1 if band.holds else C.s2,
            linewidth=3.2 if band.holds else 1.2,
        )
    axes.scatter(
        [min(band.predicted, high) for band in ordered], range(len(ordered)), s=9, color=C.ink, zorder=3
    )
    return Chart(slug, title, caption, canvas.svg(slug=slug, title=title, description=words))
