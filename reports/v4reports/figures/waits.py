"""Mean time to first token, split into what the call waited for: the first place to look for a limit.

Before the engine has a call, the host prepares its prompt. Then waits are the engine's own records per call;
the rest of the time from sending to the first token is prefill, transfer and the steps in between, shown
as one.
"""

from __future__ import annotations

import numpy as np

from v4reports import numbers
from v4reports.figures.bars import Bar, draw_bars
from v4reports.figures.base import Absent, Chart
from v4reports.figures.canvas import C, nice_ticks
from v4reports.names import EVENT_CLASSES, label, ordered
from v4reports.run import Run

SLUG = "waits"
TITLE = "What a call waits for before its first token"
HOST = ("host", C.accent)
WAITS = (
    ("wait_queue_ns", "queue", C.s2),
    ("wait_kv_ns", "KV pages", C.s1),
    ("wait_swa_ns", "window", C.s3),
    ("wait_slots_ns", "slots", C.s6),
    ("wait_budget_ns", "budget", C.s4),
)
# The kinds as a sentence calls them.
LARGEST = {
    "host": "for the host, which prepares the prompt",
    "queue": "in the queue behind other calls",
    "KV pages": "for KV pages",
    "window": "for sliding-window slots",
    "slots": "for a request slot",
    "budget": "for the prefill budget of a step",
}
REST = ("prefill and steps", C.s5)


def draw(run: Run) -> Chart | Absent:
    if run.calls is None:
        return Absent(SLUG, TITLE, "The run has no calls.parquet with the waits of each call.")
    end = "first_seen_ns" if "first_seen_ns" in run.calls.columns else "first_token_ns"
    found = run.calls.get("sent_ns", "queued_ns", end, *(name for name, _, _ in WAITS))
    classes = run.calls.classes()
    if found is None or classes is None:
        return Absent(SLUG, TITLE, "The run has no calls.parquet with the waits of each call.")
    (sent, queued, first, *in_engine), (class_of, class_names) = found, classes
    waits = [queued - sent, *in_engine]
    kinds = (HOST, *((text, colour) for _, text, colour in WAITS))
    inside = np.isfinite(first)
    if run.window_s is not None:
        inside &= (sent >= run.window_s[0]) & (sent < run.window_s[1])
    if not inside.any():
        return Absent(SLUG, TITLE, "No call of the steady window reached its first token.")
    means = {}
    for name in ("all", *ordered(EVENT_CLASSES, sorted(class_names))):
        chosen = inside if name == "all" else inside & (class_of == class_names.index(name))
        if not chosen.any():
            continue
        parts = [float(np.nan_to_num(wait[chosen]).mean()) for wait in waits]
        total = float((first - sent)[chosen].mean())
        means[name] = (int(chosen.sum()), parts, max(total - sum(parts), 0.0))
    longest = max(sum(parts) + rest for _, parts, rest in means.values())
    factor, unit = numbers.duration_unit(longest)
    bars = [
        Bar(
            label(EVENT_CLASSES, name),
            (
                *((part * factor, colour) for part, (_, colour) in zip(parts, kinds, strict=True)),
                (rest * factor, REST[1]),
            ),
            numbers.seconds_like(sum(parts) + rest, longest),
            numbers.counted(count, "calls"),
        )
        for name, (count, parts, rest) in means.items()
    ]
    present = [kind for i, kind in enumerate(kinds) if any(parts[i] > 0 for _, parts, _ in means.values())]
    ticks = [(tick, f"{tick:g} {unit}") for tick in nice_ticks(longest * factor, at_most=4)]
    canvas = draw_bars(bars, ticks=ticks, left=136, key=(*present, REST))
    words = "; ".join(f"{bar.label}: {bar.value}" for bar in bars)
    _, of_all, rest = means["all"]
    waited = sum(of_all)
    share = numbers.percent(waited / (waited + rest)) if waited + rest > 0 else numbers.UNKNOWN
    largest = LARGEST[kinds[int(np.argmax(of_all))][0]]
    caption = f"Mean per call of the steady window. Waiting is {share} of the time to first token" + (
        f", the largest part of it {largest}." if waited > 0 else "."
    )
    return Chart(SLUG, TITLE, caption, canvas.svg(slug=SLUG, title=TITLE, description=words))
