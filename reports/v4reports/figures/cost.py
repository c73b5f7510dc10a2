"""What one completed task costs: the share its calls used and the share that stood idle."""

from __future__ import annotations

from v4reports import numbers
from v4reports.figures.bars import Bar, draw_bars
from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import C, nice_ticks
from v4reports.run import Run

SLUG = "cost"
TITLE = "Cost of a completed task"


def draw(run: Run) -> Chart | Absent:
    cost = run.steady.cost
    amortised, idle_share = cost.get("amortised_per_task"), cost.get("idle_share")
    price = cost.get("price_per_gpu_hour")
    if amortised is None or idle_share is None or not price:
        return Absent(
            SLUG, TITLE, "No task was completed in the steady window, so there is no cost per task."
        )
    prices = [
        ("at the low price", cost.get("low")),
        ("as configured", price),
        ("at the high price", cost.get("high")),
    ]
    bars = []
    for name, value in prices:
        if value is None:
            continue
        total = amortised * value / price
        segments = ((total * (1 - idle_share), C.s1), (total * idle_share, C.s5))
        bars.append(Bar(f"{numbers.dollars(value)} per GPU-hour", segments, numbers.dollars(total), name))
    longest = max(bar.length for bar in bars)
    ticks = [(tick, f"${tick:.6g}") for tick in nice_ticks(longest, at_most=4)]
    canvas = draw_bars(bars, ticks=ticks, left=150, key=(("used by calls", C.s1), ("idle", C.s5)))
    caption = (
        f"{numbers.dollars(amortised)} per task at {numbers.dollars(price)} per GPU-hour; "
        f"{numbers.percent(idle_share)} of it paid for idle GPUs."
    )
    words = "; ".join(f"{bar.label}: {bar.value}" for bar in bars)
    return Chart(SLUG, TITLE, caption, canvas.svg(slug=SLUG, title=TITLE, description=words))
