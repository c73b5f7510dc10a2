"""Infers from recorded times what each call of a session waited for.

A log says when calls began and how long they took, not what they waited for. A call waits for every
earlier call that had ended when it began and that no call has waited for yet; normally that is the
call before it, after a fan-out it is the join. Calls that were still running are not waited for.
Clocks of logs are rounded to a second, hence the slack.
"""

from __future__ import annotations

from typing import NamedTuple

from v4traces.rows import CallRef

SLACK_S = 1.5


class Wait(NamedTuple):
    """What a call waits for, and when the last of it ended; no calls means the session's start, 0."""

    calls: tuple[CallRef, ...]
    ended_s: float


class OpenCalls:
    """The calls of one session, its sub-agents' last ones included, that nothing has waited for."""

    def __init__(self) -> None:
        self._open: list[tuple[CallRef, float]] = []
        self._last: list[tuple[CallRef, float]] = []

    def add(self, call: CallRef, ended_s: float) -> None:
        self._open.append((call, ended_s))

    def wait(self, began_s: float) -> Wait:
        """What a call that began at `began_s` waited for. Those calls are then no longer open."""
        done = [entry for entry in self._open if entry[1] <= began_s + SLACK_S]
        if done:
            self._open = [entry for entry in self._open if entry[1] > began_s + SLACK_S]
            self._last = done
        if not self._last:
            return Wait((), 0.0)
        return Wait(tuple(call for call, _ in self._last), max(ended for _, ended in self._last))
