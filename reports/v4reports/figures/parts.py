"""Where the time of a step goes: shares of the named parts, decode and prefill apart.

Beside each part stands what its seconds rest on (measured, published, roofline …): a bar built on a roofline
is a weaker claim than one that was timed.
"""

from __future__ import annotations

from v4reports import numbers
from v4reports.figures.base import Absent, Chart, FigureFunction
from v4reports.figures.canvas import SMALL_PX, C, Canvas, grid_x, nice_ticks, shortened
from v4reports.names import KINDS, PARTS, label
from v4reports.provenance import claim_of_part
from v4reports.run import Run

ROW_PX = 24
SHARE_SHOWN = 0.002  # smaller parts are in the table, not in the figure


def figure_of(kind: str) -> FigureFunction:
    """The figure of one kind of step."""

    def draw(run: Run) -> Chart | Absent:
        return _draw(run, kind)

    return draw


def _draw(run: Run, kind: str) -> Chart | Absent:
    slug = f"parts-{kind}"
    title = f"{label(KINDS, kind)} steps: share of time by part"
    seconds = run.steady.parts_by_kind_s.get(kind, {})
    total = sum(seconds.values())
    if total <= 0:
        return Absent(slug, title, f"No {kind} step ran.")
    ranked = sorted(seconds.items(), key=lambda item: -item[1])
    shown = [(part, value / total) for part, value in ranked if value / total >= SHARE_SHOWN]
    left, right, top, bottom = 226.0, 52.0, 4.0, 22.0
    canvas = Canvas(height=top + bottom + ROW_PX * len(shown))
    axes = canvas.axes(left, top, right, bottom)
    ticks = nice_ticks(shown[0][1], at_most=4)
    axes.set_xlim(0, shown[0][1] * 1.02)
    ticks = [tick for tick in ticks if tick <= shown[0][1] * 1.02]
    axes.set_ylim(len(shown) - 0.5, -0.5)
    grid_x(axes, ticks, [f"{tick * 100:g} %" for tick in ticks])
    rows = range(len(shown))
    axes.hlines(rows, 0, [share for _, share in shown], colors=C.s1, linewidth=12)
    for y, (part, share) in enumerate(shown):
        at_left = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
        axes.annotate(shortened(label(PARTS, part), 116), (0, y), (2 - left, 0), ha="left", **at_left)
        axes.annotate(
            shortened(claim_of_part(run, part), 104, SMALL_PX),
            (0, y),
            (-8, 0),
            ha="right",
            color=C.muted,
            fontsize=SMALL_PX,
            **at_left,
        )
        axes.annotate(
            f"{share * 100:.1f} %", (share, y), (6, 0), textcoords="offset points", va="center", ha="left"
        )
    first, first_share = shown[0]
    caption = (
        f"{label(PARTS, first)} takes {numbers.percent(first_share)} "
        f"of {numbers.seconds(total)} of {kind} steps, {run.engine_scope}."
    )
    words = ", ".join(f"{label(PARTS, part)} {numbers.percent(share)}" for part, share in shown)
    return Chart(slug, title, caption, canvas.svg(slug=slug, title=title, description=words))
