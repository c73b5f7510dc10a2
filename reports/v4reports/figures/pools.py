"""How full the KV and the sliding-window pool are over time: mean of the ranks and the fullest rank."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from v4reports import numbers
from v4reports.columns import Floats, held_maxima, held_means
from v4reports.figures import timeplot
from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import C, Canvas, grid_y, spread
from v4reports.names import POOLS, label
from v4reports.run import Run

SLUG = "pools"
TITLE = "How full the pools are"
DRAWN = (("kv", C.s1, "-"), ("swa", C.s3, (0, (3, 1.5))))


def draw(run: Run) -> Chart | Absent:
    shares = pool_shares(run)
    if run.series is None or not shares:
        return Absent(SLUG, TITLE, "The run kept no series of pool use, or no pool sizes to compare it with.")
    t_s = run.series.t_s
    end_s = float(t_s[-1])
    span = timeplot.shown_span(run, end_s)
    edges = timeplot.edges_over(span, len(t_s))
    at = timeplot.middles(edges)
    canvas = Canvas(timeplot.HEIGHT)
    axes = canvas.axes(timeplot.LEFT, timeplot.TOP, timeplot.RIGHT, timeplot.BOTTOM)
    axes.set_ylim(0, 1.02)
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0)
    grid_y(axes, ticks, [f"{tick * 100:g} %" for tick in ticks])
    timeplot.time_axis(axes, span, run.window_s)
    ends, words = [], []
    window = np.array(run.window_s if run.window_s is not None else span)

    def mean_in(share: Floats) -> str:
        return numbers.percent(float(held_means(t_s, share.mean(axis=0), window)[0]))

    drawn = [entry for entry in DRAWN if entry[0] in shares]
    for name, colour, dash in drawn:
        share = shares[name]
        fullest = held_maxima(t_s, share.max(axis=0), edges)
        mean = held_means(t_s, share.mean(axis=0), edges)
        axes.fill_between(at, mean, fullest, color=colour, alpha=0.22, linewidth=0)
        axes.plot(at, fullest, color=colour, linewidth=1.75, linestyle=dash)
        ends.append(float(fullest[-1]))
        peak_rank = int(np.argmax(share.max(axis=1)))
        words.append(
            f"{label(POOLS, name)}: peak {numbers.percent(float(share.max()))} (rank {peak_rank}), "
            f"mean {mean_in(share)}"
        )
    cached = shares.get("kv_resident")
    if cached is not None:
        mean_cached = held_means(t_s, cached.mean(axis=0), edges)
        axes.plot(at, mean_cached, color=C.muted, linewidth=1.25, linestyle=(0, (1, 1.5)))
        drawn.append(("cached KV", C.muted, ""))
        ends.append(float(mean_cached[-1]))
        words.append(f"Cached prefixes: mean {mean_in(cached)} of the KV pool")
    for (name, colour, _), y in zip(drawn, spread(ends, 0.09, 0.0, 1.0), strict=True):
        timeplot.end_label(axes, y, name.upper() if name in ("kv", "swa") else name, colour, weight="bold")
    caption = (
        f"{'. '.join(words)}. Means over the steady window. Line: the fullest rank; shade: down to the mean."
        f"{timeplot.span_words(span, end_s)}"
    )
    return Chart(SLUG, TITLE, caption, canvas.svg(slug=SLUG, title=TITLE, description=caption))


def pool_shares(run: Run) -> Mapping[str, Floats]:
    """Use ÷ capacity, [rank, sample], of the pools whose series and sizes both are there."""
    shares: dict[str, Floats] = {}
    if run.series is None:
        return shares
    for name, series, pool_name in (
        ("kv", "kv_used", "kv"),
        ("swa", "swa_used", "swa"),
        ("kv_resident", "kv_resident", "kv"),
    ):
        used = run.series.by_name.get(series)
        sizes = np.array([pool.capacity_tokens for pool in run.full.pools if pool.name == pool_name])
        if used is not None and len(sizes) == len(used) and (sizes > 0).all():
            shares[name] = used / sizes[:, None]
    return shares
