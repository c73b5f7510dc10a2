"""Acceptance of draft tokens by position, one line per phase of the output."""

from __future__ import annotations

from v4reports import numbers
from v4reports.figures import timeplot
from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import C, Canvas, grid_x, grid_y, spread
from v4reports.names import PHASES, label, ordered
from v4reports.run import Run

SLUG = "speculation"
TITLE = "Draft tokens accepted, by position and phase"
STYLES = ((C.s1, "o"), (C.s2, "s"), (C.s3, "^"), (C.s4, "D"), (C.s6, "v"), (C.s5, "P"))


def draw(run: Run) -> Chart | Absent:
    spec = run.steady.speculation
    if spec is None or not spec.is_on:
        return Absent(SLUG, TITLE, "Speculation is off in this deployment.")
    curves = []
    for phase in ordered(PHASES, spec.by_phase):
        points = [(i + 1, rate) for i, rate in enumerate(spec.by_phase[phase].rate) if rate is not None]
        if points:
            curves.append((phase, points))
    if not curves:
        return Absent(SLUG, TITLE, "No draft token was offered.")
    positions = max(points[-1][0] for _, points in curves)
    canvas = Canvas(timeplot.HEIGHT)
    axes = canvas.axes(timeplot.LEFT, 10, timeplot.RIGHT, 38)
    axes.set_xlim(0.85, positions + 0.15)
    axes.set_ylim(0, 1.02)
    grid_x(axes, range(1, positions + 1), [str(i) for i in range(1, positions + 1)])
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0)
    grid_y(axes, ticks, [f"{tick * 100:g} %" for tick in ticks])
    axes.set_xlabel("draft position", color=C.muted, fontsize=11, labelpad=4)
    styles = [STYLES[i % len(STYLES)] for i in range(len(curves))]
    for (_, points), (colour, marker) in zip(curves, styles, strict=True):
        axes.plot(
            *zip(*points, strict=True),
            color=colour,
            marker=marker,
            markersize=6,
            linewidth=1.75,
            clip_on=False,
        )
    heights = spread([points[-1][1] for _, points in curves], 0.095, 0.02, 1.0)
    for (phase, _), (colour, _), y in zip(curves, styles, heights, strict=True):
        timeplot.end_label(axes, y, label(PHASES, phase), colour, weight="bold")
    words = "; ".join(
        f"{label(PHASES, phase)}: " + ", ".join(numbers.percent(rate) for _, rate in points)
        for phase, points in curves
    )
    caption = "Accepted ÷ offered at each draft position, whole run."
    return Chart(SLUG, TITLE, caption, canvas.svg(slug=SLUG, title=TITLE, description=words))
