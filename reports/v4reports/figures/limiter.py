"""How much a little more of each resource improves the objective, or worsens it."""

from __future__ import annotations

from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import WIDTH
from v4reports.figures.change import Change, draw_bars_of, in_words
from v4reports.run import Run

SLUG = "limiter"
TITLE = "Gain from more of one resource alone"


def draw(run: Run) -> Chart | Absent:
    found = run.limiter
    if found is None or not found.gains:
        return Absent(SLUG, TITLE, "`v4sim limiter` was not asked for this run.")
    bars = [
        Change(one.title, one.gain, "sure" if one.is_sure else "worse" if one.gain < 0 else "")
        for one in found.gains
    ]
    caption = f"Relative improvement of the {found.says}; to the right is better."
    svg = draw_bars_of(bars, slug=SLUG, title=TITLE, width=WIDTH, words=in_words(bars))
    return Chart(SLUG, TITLE, caption, svg)
