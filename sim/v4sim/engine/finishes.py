"""Which decoding call ends next: a heap over decode clocks that forgives calls which left or changed.

An entry counts only while its call still has the join order it was pushed with; retracted calls and
calls that were walked again leave stale entries behind, dropped when they surface.
"""

from __future__ import annotations

import heapq
from typing import Final

from v4sim.engine.call import RUNNING, Call

NEVER: Final = 1 << 40


class FinishQueue:
    """Calls by the clock at which they finish; ties in order of joining."""

    __slots__ = ("_heap", "_joins")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Call]] = []
        self._joins = 0

    def push(self, call: Call) -> None:
        """`call` decodes from its `clock0` for its `num_steps`; an earlier entry of it no longer counts."""
        self._joins += 1
        call.join_order = self._joins
        heapq.heappush(self._heap, (call.clock0 + call.num_steps, self._joins, call))

    def bring_forward(self, call: Call) -> None:
        """`call` finishes earlier than was said; its place among those that finish with it stays."""
        heapq.heappush(self._heap, (call.clock0 + call.num_steps, call.join_order, call))

    def next_clock(self) -> int:
        """The clock of the next finish, or one that is never reached."""
        heap = self._heap
        while heap and not _counts(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER

    def pop_due(self, clock: int) -> list[Call]:
        """Remove and return the calls that finish at or before `clock`."""
        due: list[Call] = []
        heap = self._heap
        while heap and heap[0][0] <= clock:
            entry = heapq.heappop(heap)
            if _counts(entry):
                due.append(entry[2])
        return due


def _counts(entry: tuple[int, int, Call]) -> bool:
    _, order, call = entry
    return call.join_order == order and call.state == RUNNING
