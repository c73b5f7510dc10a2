"""Simulated time: integer nanoseconds, and the one order of events at equal times.

Every instant and every duration inside the simulator is an `int` of nanoseconds, so that sums do
not depend on their order and two ways of computing the same run can be compared exactly. Seconds
exist only at the edges (trace columns in, reports out).

Order of events. SimPy sorts by (time, priority, sequence). Four priorities exist, in this order:

    URGENT (0)    SimPy's own process start-up
    NORMAL (1)    session turns, arrivals, tool waits, transfers
    STEP_END (2)  the end of an engine step: results are processed, calls complete
    DECIDE (3)    the engine chooses its next batch

So a call that arrives at the very instant a step ends is in the queue when the next batch is
chosen, and so is the follow-up of a call that completed in that step and has no delay.
"""

from __future__ import annotations

from collections.abc import Callable

import simpy

NS_PER_S = 1_000_000_000
NORMAL = 1
STEP_END = 2
DECIDE = 3


def to_ns(seconds: float) -> int:
    """Seconds to integer nanoseconds, rounded half to even."""
    return round(seconds * NS_PER_S)


def to_s(nanoseconds: int) -> float:
    return nanoseconds / NS_PER_S


def call_at(env: simpy.Environment, at_ns: int, priority: int, action: Callable[[], None]) -> None:
    """Run `action` at simulated time `at_ns` (not before now) with the given priority."""
    event = simpy.Event(env)
    event._ok = True
    event._value = None
    event.callbacks.append(lambda _event: action())
    env.schedule(event, priority, at_ns - int(env.now))  # type: ignore[arg-type]
