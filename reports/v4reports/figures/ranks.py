"""Attention work per rank: under lockstep the busiest rank sets the pace of all."""

from __future__ import annotations

from v4reports import numbers
from v4reports.figures.bars import Bar, draw_bars
from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import C, nice_ticks
from v4reports.run import Run

SLUG = "ranks"
TITLE = "Attention work of each rank"
MOST_NAMED = 16


def draw(run: Run) -> Chart | Absent:
    ranks = run.steady.ranks
    if not ranks:
        return Absent(SLUG, TITLE, "The run recorded no work per rank.")
    most = max(rank.attention_s for rank in ranks)
    if most <= 0:
        return Absent(SLUG, TITLE, "No rank spent time on attention in the steady window.")
    mean = sum(rank.attention_s for rank in ranks) / len(ranks)
    shown = sorted(ranks, key=lambda rank: -rank.attention_s)[:MOST_NAMED]
    shown = sorted(shown, key=lambda rank: (rank.replica, rank.rank))
    several = len({rank.replica for rank in ranks}) > 1
    factor, unit = numbers.duration_unit(most)
    bars = [
        Bar(
            f"Replica {rank.replica}, rank {rank.rank}" if several else f"Rank {rank.rank}",
            ((rank.attention_s * factor, C.s1 if rank.attention_s < most else C.s2),),
            numbers.times(rank.attention_s / mean),
            f"{numbers.scaled(rank.decode_tokens)} decoded",
        )
        for rank in shown
    ]
    ticks = [(tick, f"{tick:g} {unit}") for tick in nice_ticks(most * factor, at_most=4)]
    canvas = draw_bars(bars, ticks=ticks, left=146)
    caption = (
        f"At the right: times the mean. The busiest rank does {numbers.times(most / mean)} "
        f"the mean of {len(ranks)}."
    )
    if len(ranks) > MOST_NAMED:
        caption += f" The {MOST_NAMED} busiest are drawn; the table has all."
    words = "; ".join(f"{bar.label}: {bar.value} the mean" for bar in bars)
    return Chart(SLUG, TITLE, caption, canvas.svg(slug=SLUG, title=TITLE, description=words))
