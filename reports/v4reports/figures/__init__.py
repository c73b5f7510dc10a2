"""The figures of the page by name. One file per figure, one function `draw(run)` in each.

To add a figure: write `figures/<name>.py` with `draw`, list it here, and name it in a section.
"""

from __future__ import annotations

from v4reports.figures import (
    blocked,
    cost,
    hits,
    itl,
    limiter,
    load,
    parts,
    pools,
    ranks,
    speculation,
    ttft,
    waits,
)
from v4reports.figures.base import Absent, Chart, FigureFunction
from v4reports.run import Run
from v4sim.errors import RunError

FIGURES: dict[str, FigureFunction] = {
    "ttft": ttft.draw,
    "waits": waits.draw,
    "itl": itl.draw,
    "load": load.draw,
    "cost": cost.draw,
    "parts-decode": parts.figure_of("decode"),
    "parts-prefill": parts.figure_of("prefill"),
    "parts-mixed": parts.figure_of("mixed"),
    "hits": hits.draw,
    "pools": pools.draw,
    "ranks": ranks.draw,
    "blocked": blocked.draw,
    "limiter": limiter.draw,
    "speculation": speculation.draw,
}


def draw(name: str, run: Run) -> Chart | Absent:
    """Draw the figure called `name`. The caller has entered `canvas.house_style`."""
    if name not in FIGURES:
        raise RunError(f"there is no figure {name!r}; choose one of: {', '.join(FIGURES)}")
    return FIGURES[name](run)


__all__ = ["FIGURES", "Absent", "Chart", "draw"]
