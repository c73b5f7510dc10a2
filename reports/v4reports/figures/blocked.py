"""What kept calls from being admitted: waiting time by reason, with the number of calls."""

from __future__ import annotations

from v4reports import numbers
from v4reports.figures.bars import Bar, draw_bars
from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import C, nice_ticks
from v4reports.names import REASONS, label
from v4reports.run import Run

SLUG = "blocked"
TITLE = "Waiting before admission, by reason"


def draw(run: Run) -> Chart | Absent:
    if not run.steady.blocked:
        return Absent(SLUG, TITLE, "The run recorded no reasons for waiting.")
    found = sorted(
        ((reason, entry) for reason, entry in run.steady.blocked.items() if entry.time_s > 0),
        key=lambda item: (-item[1].time_s, item[0]),
    )
    if not found:
        return Absent(SLUG, TITLE, "Nothing: no call of the steady window waited to be admitted.")
    longest = found[0][1].time_s
    factor, unit = numbers.duration_unit(longest)
    bars = [
        Bar(
            label(REASONS, reason),
            ((entry.time_s * factor, C.s2),),
            numbers.seconds_like(entry.time_s, longest),
            numbers.counted(entry.calls, "calls"),
        )
        for reason, entry in found
    ]
    ticks = [(tick, f"{tick:g} {unit}") for tick in nice_ticks(longest * factor, at_most=4)]
    canvas = draw_bars(bars, ticks=ticks, left=178)
    reason, entry = found[0]
    caption = (
        f"{label(REASONS, reason)}: {numbers.counted(entry.calls, 'calls')} waited "
        f"{numbers.seconds(entry.time_s)} in all, {numbers.seconds(entry.time_s / max(entry.calls, 1))} each."
    )
    words = "; ".join(f"{bar.label}: {bar.value}, {bar.note}" for bar in bars)
    return Chart(SLUG, TITLE, caption, canvas.svg(slug=SLUG, title=TITLE, description=words))
