"""Horizontal bars with a label at the left and a value at the right: shared by several figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from v4reports.figures.canvas import SMALL_PX, C, Canvas, grid_x, shortened


@dataclass(frozen=True, slots=True)
class Bar:
    """One row. Segments are (length, colour token) from the left; `note` is a second, muted line."""

    label: str
    segments: tuple[tuple[float, str], ...]
    value: str
    note: str = ""

    @property
    def length(self) -> float:
        return sum(length for length, _ in self.segments)


def draw_bars(
    bars: Sequence[Bar],
    *,
    ticks: Sequence[tuple[float, str]],
    left: float = 150.0,
    right: float = 62.0,
    row: float = 34.0,
    key: Sequence[tuple[str, str]] = (),
) -> Canvas:
    """Bars from top to bottom. `key` lists (name, colour token) of the segments above the bars."""
    top, bottom = (26.0 if key else 4.0), 22.0
    canvas = Canvas(top + bottom + row * len(bars))
    axes = canvas.axes(left, top, right, bottom)
    longest = max(max(bar.length for bar in bars), ticks[-1][0] if ticks else 0.0) or 1.0
    axes.set_xlim(0, longest * 1.01)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    grid_x(axes, [tick for tick, _ in ticks], [text for _, text in ticks])
    _segments(axes, bars, thickness=min(14.0, row * 0.5))
    for y, bar in enumerate(bars):
        at_left: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate(
            shortened(bar.label, left - 8),
            (0, y),
            (2 - left, 6 if bar.note else 0),
            ha="left",
            va="center",
            **at_left,
        )
        if bar.note:
            axes.annotate(
                bar.note,
                (0, y),
                (2 - left, -8),
                ha="left",
                va="center",
                color=C.muted,
                fontsize=SMALL_PX,
                **at_left,
            )
        axes.annotate(bar.value, (1, y), (right - 2, 0), ha="right", va="center", **at_left)
    _key(axes, key, left)
    return canvas


def _segments(axes: Any, bars: Sequence[Bar], thickness: float) -> None:
    """All segments of one colour are one artist."""
    by_colour: dict[str, list[tuple[int, float, float]]] = {}
    for y, bar in enumerate(bars):
        start = 0.0
        for length, colour in bar.segments:
            if length > 0:
                by_colour.setdefault(colour, []).append((y, start, start + length))
            start += length
    for colour, spans in by_colour.items():
        axes.hlines(
            [y for y, _, _ in spans],
            [a for _, a, _ in spans],
            [b for _, _, b in spans],
            colors=colour,
            linewidth=thickness,
        )


def _key(axes: Any, key: Sequence[tuple[str, str]], left: float) -> None:
    """Names of the segments in a row above the bars, each after a square of its colour."""
    x = 2.0 - left
    for name, colour in key:
        where: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "baseline"}
        axes.annotate("■", (0, 1), (x, 10), color=colour, fontsize=SMALL_PX, **where)
        axes.annotate(name, (0, 1), (x + 15, 10), color=C.ink, fontsize=SMALL_PX, **where)
        x += 15 + 7.0 * len(name) + 14
