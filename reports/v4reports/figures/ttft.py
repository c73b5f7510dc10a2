"""Time to first token by how the call began: the page's first chart."""

from __future__ import annotations

from typing import Any

from v4reports import numbers
from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import WIDTH
from v4reports.figures.percentiles import Row, described, draw_strips
from v4reports.names import EVENT_CLASSES, RESUME_VIEWS, label, ordered
from v4reports.run import Run

SLUG = "ttft"
TITLE = "Time to first token, by how the call began"


def draw(run: Run) -> Chart | Absent:
    dists = run.steady.ttft_ms
    if not dists:
        return Absent(SLUG, TITLE, "No call of the steady window reached its first token.")
    rows = [
        Row(label(EVENT_CLASSES, name), dists[name], strong=name == "resume_tool")
        for name in ordered(EVENT_CLASSES, dists)
        if name not in RESUME_VIEWS
    ]
    objective_s = objective(run, "ttft_p95_s")
    limit_ms = None if objective_s is None else objective_s * 1e3
    words = described(rows)
    caption = "Dot p50, bar to p95, line to p99; logarithmic time. Steady window."
    if limit_ms is not None:
        over = [row.label for row in rows if row.dist.p95 > limit_ms]
        target = numbers.tick_ms(limit_ms)
        caption += (
            f" Over the objective of {target}: {', '.join(over)}."
            if over
            else f" All p95 are within {target}."
        )
    narrow, wide = (
        draw_strips(
            rows,
            slug=slug,
            title=TITLE,
            description=words,
            width=width,
            limit_ms=limit_ms,
            css_class=css_class,
        )
        for slug, width, css_class in ((SLUG, WIDTH, "narrow"), (SLUG + "-wide", 700, "wide"))
    )
    return Chart(SLUG, TITLE, caption, narrow, wide)


def objective_form(run: Run) -> str:
    """Which of the two inter-token times the objective is about: `burst` or `divided`."""
    return "burst" if _objective_section(run).get("itl_form") == "burst" else "divided"


def _objective_section(run: Run) -> dict[str, Any]:
    deployment = run.manifest.get("deployment")
    section = deployment.get("objective") if isinstance(deployment, dict) else None
    return section if isinstance(section, dict) else {}


def objective(run: Run, name: str) -> float | None:
    """A number of the deployment's `objective` section, if it has one."""
    value = _objective_section(run).get(name)
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None
    )
