"""What the figures over time share: one time axis with the steady window marked on it, and bins.

A run may hold thousands of samples; 160 bins are what 320 px can show. Peaks matter to an operator, so
figures draw the bin maximum where a limit is concerned and the mean elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from v4reports import numbers
from v4reports.columns import Floats
from v4reports.figures.canvas import SMALL_PX, C, grid_x, shortened
from v4reports.run import Run

NUM_BINS = 160
LEFT, RIGHT, TOP, BOTTOM = 48.0, 96.0, 22.0, 30.0
HEIGHT = 220.0


def shown_span(run: Run, end_s: float) -> tuple[float, float]:
    """The stretch of the run that a figure shows, up to `end_s` where the run ends.

    A closed loop drains for hours of simulated time when one person comes back late; a window that would
    be a sliver is shown with a third of its length on either side instead.
    """
    if run.window_s is None:
        return 0.0, end_s
    start, stop = run.window_s
    length = stop - start
    if length >= 0.4 * end_s:
        return 0.0, end_s
    return max(start - length / 3, 0.0), min(stop + length / 3, end_s)


def span_words(span_s: tuple[float, float], end_s: float) -> str:
    """A sentence about what is not drawn; empty when all of the run is."""
    if span_s[0] <= 0 and span_s[1] >= end_s:
        return ""
    return f" Drawn around the steady window; the run ends at {numbers.seconds(end_s)}."


def edges_over(span_s: tuple[float, float], num_samples: int) -> Floats:
    """Edges of at most NUM_BINS equal bins; no more bins than samples."""
    return np.linspace(*span_s, max(2, min(NUM_BINS, num_samples)) + 1)


def middles(edges: Floats) -> Floats:
    return (edges[:-1] + edges[1:]) / 2


def time_axis(axes: Any, span_s: tuple[float, float], window_s: tuple[float, float] | None) -> None:
    """Ticks at round instants and a band behind the steady window."""
    start_s, end_s = span_s
    span = end_s - start_s
    axes.set_xlim(start_s, end_s)
    ticks = numbers.clock_ticks(start_s, end_s)
    grid_x(axes, ticks, [numbers.clock(tick, span) for tick in ticks])
    if window_s is None:
        return
    low, high = max(window_s[0], start_s), min(window_s[1], end_s)
    if not start_s < low < end_s and not start_s < high < end_s:
        return  # the window is the whole run: a band behind everything would say nothing
    axes.axvspan(low, high, color=C.band, linewidth=0, zorder=0)
    axes.annotate(
        "steady window", ((low + high) / 2, 1), (0, 5), xycoords=("data", "axes fraction"),
        textcoords="offset points", ha="center", color=C.muted, fontsize=SMALL_PX,
    )  # fmt: skip


def end_label(axes: Any, y: float, text: str, colour: str, *, weight: str = "normal") -> None:
    """A series' name at the right end of the plot, at height `y` of the data."""
    axes.annotate(
        shortened(text, RIGHT - 8), (1, y), (8, 0), xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center", ha="left", color=colour, weight=weight, annotation_clip=False,
    )  # fmt: skip
