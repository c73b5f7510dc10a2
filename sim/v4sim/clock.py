"""Simulated time: integer nanoseconds, and the one order of events at equal times.

Every instant and every duration inside the simulator is an `int` of nanoseconds, so that sums do
not depend on their order and two ways of computing the same run can be compared exactly. Seconds
exist only at the edges (trace columns in, reports out).

Order of events. SimPy sorts by (time, priority, sequence). The priorities, in this order:

    URGENT (0)             SimPy's own process start-up
    NORMAL (1)             session turns, arrivals, tool waits, transfers
    step_end(replica)      the end of an engine step: results are processed, calls complete
    decide(replica)        the engine chooses its next batch

So a call that arrives at the very instant a step ends is in the queue when the next batch is
chosen, and so is the follow-up of a call that completed in that step and has no delay. Replicas that
step at the same instant do so in order of their number, whenever that was scheduled: all steps end
before any replica decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import simpy

NS_PER_S: Final = 1_000_000_000
NORMAL = 1
_STEP_END: Final = 2
_DECIDE: Final = 1 << 20


def step_end(replica: int) -> int:
    """Priority of the end of a step of this replica."""
    return _STEP_END + replica


def decide(replica: int) -> int:
    """Priority of this replica's choice of a batch."""
    return _DECIDE + replica


def to_ns(seconds: float) -> int:
    """Seconds to integer nanoseconds, rounded half to even."""
    return round(seconds * NS_PER_S)


def to_s(nanoseconds: int) -> float:
    return nanoseconds / NS_PER_S


class Turn:
    """Which replica chose a batch last, and when.

    A choice can end calls (a head that can never be served), and what follows from that at the same instant
    comes after the choices of this replica and those before it.
    """

    __slots__ = ("_at_ns", "_replica")

    def __init__(self) -> None:
        self._at_ns = self._replica = -1

    def take(self, at_ns: int, replica: int) -> None:
        """`replica` chooses now."""
        self._at_ns, self._replica = at_ns, replica

    def has_passed(self, at_ns: int, replica: int) -> bool:
        """Whether `replica` has had its choice at this instant, since a later one has."""
        return self._at_ns == at_ns and self._replica > replica


def call_at(env: simpy.Environment, at_ns: int, priority: int, action: Callable[[], None]) -> None:
    """Run `action` at simulated time `at_ns` (not before now) with the given priority."""
    # simpy names two priorities and an Event, but orders by any integer and reads no more than `_Moment` has.
    env.schedule(_Moment(action), priority, at_ns - int(env.now))  # type: ignore[arg-type]  # see above


class _Moment:
    """An event that has happened already, and that `action` alone waits for; simpy's own would do more."""

    __slots__ = ("_action", "_ok", "callbacks")

    def __init__(self, action: Callable[[], None]) -> None:
        self._ok = True
        self._action = action
        self.callbacks: list[Callable[[Any], None]] | None = [self]  # simpy takes them when it comes to them

    def __call__(self, event: Any) -> None:
        self._action()
