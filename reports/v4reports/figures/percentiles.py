"""The percentile strip: one row per quantity, a line from p50 to p99 with a dot at p50 and a bar to p95.

Time runs on a logarithmic axis. Shared by the figures of first-token and inter-token times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from v4reports import numbers
from v4reports.figures.canvas import SMALL_PX, C, Canvas, grid_x, log_ticks, shortened
from v4reports.run import Dist

ROW_PX = 34


@dataclass(frozen=True, slots=True)
class Row:
    label: str
    dist: Dist  # milliseconds
    strong: bool = False
    unit: str = "calls"
    judged: bool = True  # whether the objective is about this quantity


def draw_strips(
    rows: Sequence[Row],
    *,
    slug: str,
    title: str,
    description: str,
    width: float,
    limit_ms: float | None = None,
    css_class: str = "",
) -> str:
    """The strips as an SVG element. `limit_ms` draws an objective for the p95."""
    top, bottom, left, right = 30.0, 24.0, 136.0, 72.0
    canvas = Canvas(height=top + bottom + ROW_PX * len(rows), width=width)
    axes = canvas.axes(left, top, right, bottom)

    known = [value for row in rows for value in (row.dist.p50, row.dist.p99) if value > 0]
    if limit_ms:
        known.append(limit_ms)
    low, high = min(known, default=1.0), max(known, default=10.0)
    low, high = low / 1.25, max(high * 1.15, low * 4)
    axes.set_xlim(math.log10(low), math.log10(high))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    ticks = log_ticks(low, high, width - left - right)
    grid_x(axes, [math.log10(tick) for tick in ticks], [numbers.tick_ms(tick) for tick in ticks])

    def x(value: float) -> float:
        return math.log10(max(value, low))

    spans = [(x(row.dist.p50), x(row.dist.p95), x(row.dist.p99)) for row in rows]
    heights = range(len(rows))
    colours = [C.s1 if row.strong else C.muted for row in rows]
    axes.hlines(heights, [s[0] for s in spans], [s[2] for s in spans], colors=colours, linewidth=1.5)
    axes.hlines(heights, [s[0] for s in spans], [s[1] for s in spans], colors=colours, linewidth=7)
    axes.vlines(
        [s[2] for s in spans],
        [y - 0.15 for y in heights],
        [y + 0.15 for y in heights],
        colors=colours,
        lw=1.5,
    )
    axes.scatter(
        [s[0] for s in spans],
        heights,
        s=64,
        c=C.paper,
        edgecolors=colours,
        linewidths=2,
        zorder=3,
        clip_on=False,
    )
    if limit_ms:
        axes.axvline(math.log10(limit_ms), color=C.warn, linewidth=1.5, dashes=(4, 3))
        side = "right" if math.log10(limit_ms) > sum(axes.get_xlim()) / 2 else "left"
        shift = -5 if side == "right" else 5
        axes.annotate(
            f"objective p95 {numbers.tick_ms(limit_ms)}",
            (math.log10(limit_ms), 1),
            (shift, 5),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha=side,
            color=C.warn,
            fontsize=SMALL_PX,
        )

    for y, row in zip(heights, rows, strict=True):
        weight = "bold" if row.strong else "normal"
        over = limit_ms is not None and row.judged and row.dist.p95 > limit_ms
        axes.annotate(
            shortened(row.label, left - 8), (0, y), (-8 - left + 10, 6), xycoords=("axes fraction", "data"),
            textcoords="offset points", va="center", ha="left", weight=weight,
        )  # fmt: skip
        axes.annotate(
            numbers.counted(row.dist.count, row.unit), (0, y), (-8 - left + 10, -8),
            xycoords=("axes fraction", "data"), textcoords="offset points", va="center", ha="left",
            color=C.muted, fontsize=SMALL_PX,
        )  # fmt: skip
        axes.annotate(
            numbers.ms(row.dist.p95), (1, y), (right - 2, 0), xycoords=("axes fraction", "data"),
            textcoords="offset points", va="center", ha="right", weight=weight,
            color=C.warn if over else C.ink,
        )  # fmt: skip
    axes.annotate(
        "p95", (1, 1), (right - 2, 5), xycoords="axes fraction", textcoords="offset points",
        ha="right", color=C.muted, fontsize=SMALL_PX,
    )  # fmt: skip
    return canvas.svg(slug=slug, title=title, description=description, css_class=css_class)


def described(rows: Sequence[Row]) -> str:
    """The strips in words, for readers who do not see them."""
    return "; ".join(
        f"{row.label}: p50 {numbers.ms(row.dist.p50)}, p95 {numbers.ms(row.dist.p95)}, "
        f"p99 {numbers.ms(row.dist.p99)}"
        for row in rows
    )
