"""Times between tokens: in bursts, divided, and per call; beside the decode step that makes them."""

from __future__ import annotations

from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import WIDTH
from v4reports.figures.percentiles import Row, described, draw_strips
from v4reports.figures.ttft import objective, objective_form
from v4reports.run import Run

SLUG = "itl"
TITLE = "Time between tokens"


def draw(run: Run) -> Chart | Absent:
    steady = run.steady
    candidates = (
        ("burst", "ITL, bursts", steady.itl_burst_ms, "gaps"),
        ("divided", "ITL, divided", steady.itl_ms, "tokens"),
        ("", "TPOT", steady.tpot_ms, "calls"),
        ("", "Decode step", steady.step_ms.get("decode"), "steps"),
    )
    form = objective_form(run)
    rows = [
        Row(name, dist, strong=key == form, unit=unit, judged=key == form)
        for key, name, dist, unit in candidates
        if dist is not None
    ]
    if not rows:
        return Absent(SLUG, TITLE, "No call of the steady window made a second token.")
    svg = draw_strips(
        rows,
        slug=SLUG,
        title=TITLE,
        description=described(rows),
        width=WIDTH,
        limit_ms=objective(run, "itl_p95_ms"),
    )
    scope = run.engine_scope
    covers = "Steady window." if scope == "steady window" else f"TPOT: steady window; the rest: {scope}."
    caption = f"Dot p50, bar to p95, line to p99; logarithmic time. {covers}"
    return Chart(SLUG, TITLE, caption, svg)
