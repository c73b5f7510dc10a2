"""How many calls run and how many wait, over the whole run."""

from __future__ import annotations

import numpy as np

from v4reports import numbers
from v4reports.columns import held_maxima, held_means
from v4reports.figures import timeplot
from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import C, Canvas, grid_y, nice_ticks, spread
from v4reports.run import Run

SLUG = "load"
TITLE = "Calls running and waiting"


def draw(run: Run) -> Chart | Absent:
    series = run.series
    if series is None or "running" not in series.by_name or "queued" not in series.by_name:
        return Absent(SLUG, TITLE, "The run kept no series of running and queued calls.")
    running, queued = (series.by_name[name].sum(axis=0) for name in ("running", "queued"))
    end_s = float(series.t_s[-1])
    span = timeplot.shown_span(run, end_s)
    edges = timeplot.edges_over(span, len(series.t_s))
    at = timeplot.middles(edges)
    mean_running = held_means(series.t_s, running, edges)
    peak_queued = held_maxima(series.t_s, queued, edges)

    canvas = Canvas(timeplot.HEIGHT)
    axes = canvas.axes(timeplot.LEFT, timeplot.TOP, timeplot.RIGHT, timeplot.BOTTOM)
    top = float(max(mean_running.max(), peak_queued.max(), 1.0))
    ticks = nice_ticks(top)
    axes.set_ylim(0, max(ticks[-1], top * 1.02))
    grid_y(axes, ticks, [f"{tick:g}" for tick in ticks])
    timeplot.time_axis(axes, span, run.window_s)
    axes.fill_between(at, 0, mean_running, color=C.s1, alpha=0.22, linewidth=0)
    axes.plot(at, mean_running, color=C.s1, linewidth=1.75)
    axes.plot(at, peak_queued, color=C.s2, linewidth=1.75, linestyle=(0, (3, 1.5)))
    names = spread([float(mean_running[-1]), float(peak_queued[-1])], top * 0.1, 0, axes.get_ylim()[1])
    timeplot.end_label(axes, names[0], "running", C.s1, weight="bold")
    timeplot.end_label(axes, names[1], "waiting", C.s2, weight="bold")

    window = np.array(run.window_s if run.window_s is not None else span)
    mean, most = (
        float(held(series.t_s, values, window)[0])
        for held, values in ((held_means, running), (held_maxima, queued))
    )
    caption = (
        f"Sum over all ranks; waiting as the peak of each moment. In the steady window "
        f"{numbers.digits(mean)} run on average and at most {numbers.integer(most)} wait."
        f"{timeplot.span_words(span, end_s)}"
    )
    return Chart(SLUG, TITLE, caption, canvas.svg(slug=SLUG, title=TITLE, description=caption))
