"""Where the prompt tokens came from over time, against what an infinite cache would have held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from v4reports import numbers
from v4reports.columns import Calls, Floats
from v4reports.figures import timeplot
from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import C, Canvas, grid_y, spread
from v4reports.names import TIERS, label
from v4reports.run import Run

SLUG = "hits"
TITLE = "Prompt tokens by where they came from"
DRAWN = (("device", C.s1), ("host", C.s3), ("storage", C.s4))
COLUMNS = ("admit_ns", "prompt_tokens", "bound_tokens", "hit_tokens", "hit_host_tokens", "hit_storage_tokens")
NUM_BINS = 40  # each bin needs calls enough for a ratio
CALLS_PER_BIN = 8


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the prompt tokens admitted in each bin; NaN in a bin without calls. `tiers` follows DRAWN."""

    span_s: tuple[float, float]
    edges: Floats
    tiers: tuple[Floats, ...]
    bound: Floats


def draw(run: Run) -> Chart | Absent:
    found = run.calls.get(*COLUMNS) if isinstance(run.calls, Calls) else None
    if found is None:
        return Absent(SLUG, TITLE, "The run has no calls.parquet with admission times and hits by tier.")
    admitted = np.isfinite(found[0]) & (found[1] > 0)
    if not admitted.any():
        return Absent(SLUG, TITLE, "No call was admitted.")
    columns = [column[admitted] for column in found]
    end_s = float(columns[0].max()) or 1.0
    shares = _shares(run, columns, end_s)

    canvas = Canvas(timeplot.HEIGHT)
    axes = canvas.axes(timeplot.LEFT, timeplot.TOP, timeplot.RIGHT, timeplot.BOTTOM)
    axes.set_ylim(0, 1.0)
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0)
    grid_y(axes, ticks, [f"{tick * 100:g} %" for tick in ticks])
    timeplot.time_axis(axes, shares.span_s, run.window_s)
    last = int(np.flatnonzero(np.isfinite(shares.bound))[-1])
    below = np.zeros(len(shares.bound))
    ends = []
    for (name, colour), share in zip(DRAWN, shares.tiers, strict=True):
        if np.nansum(share) > 0:
            axes.stairs(
                below + share, shares.edges, baseline=below, color=colour, alpha=0.55, fill=True, linewidth=0
            )
            ends.append((float(below[last] + share[last] / 2), label(TIERS, name).lower(), colour))
        below = below + share
    axes.stairs(shares.bound, shares.edges, baseline=None, color=C.ink, linewidth=1.5, linestyle=(0, (4, 2)))
    ends.append((float(shares.bound[last]), "bound", C.ink))
    for (_, text, colour), y in zip(ends, spread([e[0] for e in ends], 0.085, 0.03, 0.99), strict=True):
        timeplot.end_label(axes, y, text, colour, weight="bold")

    hit_ratio, bound_ratio = run.full.hit.get("token_ratio"), run.full.hit.get("bound_ratio")
    caption = (
        f"Whole run: {numbers.percent(hit_ratio)} of prompt tokens were hits; "
        f"an infinite cache would reach {numbers.percent(bound_ratio)}. Dashed: that bound."
        f"{timeplot.span_words(shares.span_s, end_s)}"
    )
    return Chart(SLUG, TITLE, caption, canvas.svg(slug=SLUG, title=TITLE, description=caption))


def _shares(run: Run, columns: Sequence[Floats], end_s: float) -> Shares:
    """`columns` are COLUMNS of the admitted calls."""
    admit = columns[0]
    span = timeplot.shown_span(run, end_s)
    if not ((admit >= span[0]) & (admit <= span[1])).any():
        span = (0.0, end_s)
    drawn = (admit >= span[0]) & (admit <= span[1])
    edges = np.linspace(*span, max(2, min(NUM_BINS, int(drawn.sum()) // CALLS_PER_BIN)) + 1)
    bin_of = np.clip(np.searchsorted(edges, admit[drawn], side="right") - 1, 0, len(edges) - 2)
    prompt, bound, *tiers = (
        np.bincount(bin_of, weights=column[drawn], minlength=len(edges) - 1).astype(np.float64)
        for column in columns[1:]
    )
    prompt[prompt == 0] = np.nan
    return Shares(span, edges, tuple(tier / prompt for tier in tiers), np.minimum(bound / prompt, 1.0))
