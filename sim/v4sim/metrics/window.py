"""Which part of a run counts: the steady window, declared and said.

Default rule, closed loop: from the first moment at which as many root sessions are alive as the workload
keeps alive to the last at which nine tenths of them are: after that the run drains, and in agent traces,
whose longest sessions last days, draining can take most of the simulated time. Open loop: from the first
root session's start to the last one's. The first 10 % of that stretch are dropped as warm-up of the caches.
When what is left holds less than a tenth of the calls, the window is the run without the first and last
10 % of its simulated time. `--window A:B` overrides both.

Latencies, tokens and hits count calls *sent* inside the window, whenever they end, so that slow calls are
not cut off. Rates and time count what happens inside it. Tasks count where they end.

Leaves out: any test of stationarity; the report shows the series, and both windows are given.
Units: integer nanoseconds of simulated time; `A:B` in seconds, or fractions of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from v4sim.errors import ConfigError
from v4sim.metrics.calls import Bools, Calls, Int64s
from v4traces.table import TraceTable

WARM_UP = 0.10
TRIM = 0.10
FULL_ENOUGH = 0.90
FEWEST_SHARE = 0.10


@dataclass(frozen=True, slots=True)
class Window:
    """Half-open interval [start, end) of simulated time and the rule that chose it, in words."""

    start_ns: int
    end_ns: int
    rule: str

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    def holds(self, moments_ns: Int64s) -> Bools:
        """Whether moments that were reached (>= 0) lie inside."""
        return (moments_ns >= max(self.start_ns, 0)) & (moments_ns < self.end_ns)

    def share_of(self, starts_ns: Int64s, ends_ns: Int64s) -> Any:
        """The part, 0..1, of each span [start, end] that lies inside; an instant counts as 0 or 1."""
        length = ends_ns - starts_ns
        inside = np.minimum(ends_ns, self.end_ns) - np.maximum(starts_ns, self.start_ns)
        spread = np.clip(inside, 0, None) / np.maximum(length, 1)
        return np.where(length > 0, spread, self.holds(ends_ns).astype(np.float64))

    def as_dict(self) -> Mapping[str, Any]:
        return {"start_s": self.start_ns / 1e9, "end_s": self.end_ns / 1e9, "rule": self.rule}


def full_window(calls: Calls, end_ns: int) -> Window:
    """All of the run, with its last instant inside."""
    last = max(end_ns, int(calls["last_token_ns"].max(initial=0)), int(calls["sent_ns"].max(initial=0)))
    return Window(0, last + 1, "the whole run")


def steady_window(
    calls: Calls, table: TraceTable, end_ns: int, alive_target: int | None = None, request: str | None = None
) -> Window:
    """The window by `request` ("A:B") or by the default rule of this module."""
    if request is not None:
        return requested_window(request, end_ns)
    steady = _steady_stretch(calls, table, alive_target, end_ns)
    if steady is not None and _holds_enough(steady, calls):
        return steady
    trimmed = round(TRIM * end_ns), round((1.0 - TRIM) * end_ns)
    return Window(*trimmed, "the run without the first and last 10 % of its simulated time")


def requested_window(request: str, end_ns: int) -> Window:
    """Parse `A:B`. A unit (`s`, `%`) at either side is that of both; without one, B <= 1 means fractions."""
    texts = request.split(":")
    unit = next((mark for mark in "s%" if any(text.endswith(mark) for text in texts)), "")
    try:
        start, end = (float(text.removesuffix(unit)) for text in texts)
        if unit == "%":
            start, end = start / 100.0, end / 100.0
        if not 0.0 <= start < end < float("inf") or (unit == "%" and end > 1.0):
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"--window {request!r}: it must be A:B with 0 <= A < B, in seconds of simulated time "
            "(120:600, 0.2s:0.8s) or as a share of the run (10%:90%, 0.1:0.9)."
        ) from None
    if unit == "%" or (unit == "" and end <= 1.0):
        return Window(
            round(start * end_ns), round(end * end_ns), f"{start:g} to {end:g} of the run, as asked"
        )
    if start * 1e9 >= end_ns:
        raise ConfigError(
            f"--window {request!r} starts at {start:g} s, but the run ends at {end_ns / 1e9:g} s; "
            "choose a window inside the run, or leave --window out for the default rule."
        )
    end_at = min(round(end * 1e9), end_ns)
    return Window(round(start * 1e9), end_at, f"{start:g} s to {end_at / 1e9:g} s, as asked")


def root_starts_and_ends(calls: Calls, table: TraceTable, end_ns: int) -> tuple[Int64s, Int64s]:
    """When each copy of a root session starts (first call ready) and ends (last token of its last call)."""
    if not len(calls):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    code, count = calls.dense("session", "instance")
    start = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(start, code, calls["ready_ns"])
    end = np.zeros(count, dtype=np.int64)
    np.maximum.at(end, code, np.where(calls.completed, calls["last_token_ns"], end_ns))
    waits_for_nothing = np.diff(table.after_offsets) == 0
    root = np.zeros(count, dtype=np.bool_)
    root[code[(table.is_first_of_session() & waits_for_nothing)[calls["row"]]]] = True
    return start[root], end[root]


def mean_alive(calls: Calls, table: TraceTable, end_ns: int, window: Window) -> float | None:
    """Root sessions alive, averaged over the window's time; None over no time."""
    starts, ends = root_starts_and_ends(calls, table, end_ns)
    if window.length_ns <= 0:
        return None
    inside = np.minimum(ends, window.end_ns) - np.maximum(starts, window.start_ns)
    return float(np.clip(inside, 0, None).sum() / window.length_ns)


def _steady_stretch(calls: Calls, table: TraceTable, alive_target: int | None, end_ns: int) -> Window | None:
    starts, ends = root_starts_and_ends(calls, table, end_ns)
    if not len(starts):
        return None
    if alive_target is None:
        stretch = int(starts.min()), int(starts.max())
        words = "from the start of the first session to that of the last"
    else:
        full = _full_load(starts, ends, alive_target)
        if full is None:
            return None
        stretch = full
        words = f"while at least {FULL_ENOUGH:.0%} of the {alive_target} sessions are alive"
    begin = stretch[0] + round(WARM_UP * (stretch[1] - stretch[0]))
    return Window(begin, stretch[1], f"{words}, less the first 10 % as warm-up")


def _full_load(starts: Int64s, ends: Int64s, target: int) -> tuple[int, int] | None:
    """From when `target` sessions are alive to when fewer than nine tenths of them are, for good.

    At equal times ends count before starts: a session that takes over from another adds none.
    """
    moments = np.concatenate([ends, starts])
    change = np.concatenate([np.full(len(ends), -1), np.full(len(starts), 1)])
    order = np.lexsort((change, moments))
    moments, alive = moments[order], np.cumsum(change[order])
    reached = np.flatnonzero(alive >= target)
    if not len(reached):
        return None
    # The last session to end leaves nobody, so there is a moment after the last full one.
    left = int(np.flatnonzero(alive >= FULL_ENOUGH * target)[-1]) + 1
    return int(moments[reached[0]]), int(moments[left])


def _holds_enough(window: Window, calls: Calls) -> bool:
    return int(window.holds(calls["sent_ns"]).sum()) >= max(FEWEST_SHARE * len(calls), 1)
