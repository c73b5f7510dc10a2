"""Where the prompt tokens came from over time, against what an infinite cache would have held."""

from __future__ import annotations

import numpy as np

from v4reports import numbers
from v4reports.figures import timeplot
from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import C, Canvas, grid_y, spread
from v4reports.names import TIERS, label
from v4reports.rundir import Run

SLUG = "hits"
TITLE = "Prompt tokens by where they came from"
DRAWN = (
    ("device", "hit_tokens", C.s1),
    ("host", "hit_host_tokens", C.s3),
    ("storage", "hit_storage_tokens", C.s4),
)
NUM_BINS = 40  # each bin needs calls enough for a ratio


def draw(run: Run) -> Chart | Absent:
    found = run.calls.get(
        "admit", "prompt_tokens", "bound_tokens", "hit_tokens", "hit_host_tokens", "hit_storage_tokens"
    ) if run.calls else None  # fmt: skip
    if found is None:
        return Absent(SLUG, TITLE, "The run has no calls.parquet with admission times and hits by tier.")
    admit, prompt, bound, *tiers = found
    inside = np.isfinite(admit) & (prompt > 0)
    if not inside.any():
        return Absent(SLUG, TITLE, "No call was admitted.")
    admit, prompt, bound = admit[inside], prompt[inside], bound[inside]
    start_s, end_s = 0.0, float(admit.max()) or 1.0
    edges = np.linspace(start_s, end_s, max(2, min(NUM_BINS, len(admit) // 8)) + 1)
    bin_of = np.clip(np.searchsorted(edges, admit, side="right") - 1, 0, len(edges) - 2)

    def per_bin(values: np.ndarray) -> np.ndarray:
        return np.bincount(bin_of, weights=values, minlength=len(edges) - 1)

    total = per_bin(prompt)
    filled = total > 0
    at = timeplot.middles(edges)[filled]
    canvas = Canvas(timeplot.HEIGHT)
    axes = canvas.axes(timeplot.LEFT, timeplot.TOP, timeplot.RIGHT, timeplot.BOTTOM)
    axes.set_ylim(0, 1.0)
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0)
    grid_y(axes, ticks, [f"{tick * 100:g} %" for tick in ticks])
    timeplot.time_axis(axes, start_s, end_s, run.window_s)
    below = np.zeros(int(filled.sum()))
    ends = []
    for (name, _, colour), hit in zip(DRAWN, tiers, strict=True):
        share = per_bin(hit[inside])[filled] / total[filled]
        if hit[inside].sum() > 0:
            axes.fill_between(at, below, below + share, color=colour, alpha=0.55, linewidth=0)
            ends.append((float(below[-1] + share[-1] / 2), label(TIERS, name).lower(), colour))
        below = below + share
    reach = np.minimum(per_bin(bound)[filled] / total[filled], 1.0)
    axes.plot(at, reach, color=C.ink, linewidth=1.5, linestyle=(0, (4, 2)))
    ends.append((float(reach[-1]), "infinite cache", C.ink))
    for (_, text, colour), y in zip(ends, spread([e[0] for e in ends], 0.085, 0.03, 0.99), strict=True):
        timeplot.end_label(axes, y, text, colour, weight="bold")
    hit_ratio, bound_ratio = run.full.hit.get("token_ratio"), run.full.hit.get("bound_ratio")
    caption = (
        f"Whole run: {numbers.percent(hit_ratio)} of prompt tokens were hits; "
        f"an infinite cache would reach {numbers.percent(bound_ratio)}. The rest was computed."
    )
    return Chart(SLUG, TITLE, caption, canvas.svg(slug=SLUG, title=TITLE, description=caption))
