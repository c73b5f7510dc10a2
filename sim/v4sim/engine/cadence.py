"""vLLM's prefill cadence (`prefill_schedule_interval`): steps of decodes alone between two that prefill.

After vLLM 0.33 (`v1/core/sched/scheduler.py`, `v1/engine/core.py`). A rank of its own counts from its last
step with a prefill; ranks of one MoE group share a count of steps since they were last idle and prefill in
every n-th. Nothing is held back while nobody decodes, nor after a step that left somebody in the queue. A
newcomer with a single token to compute is never held back.
"""

from __future__ import annotations

from v4sim.engine.rank import Rank


class PrefillCadence:
    """Of one rank. `begin` and `end` stand around each choice of a batch."""

    __slots__ = ("_interval", "_last", "_saturated", "_shared", "holds_back")

    def __init__(self, interval: int, shared: bool) -> None:
        self._interval = interval
        self._shared = shared
        self._last = -interval  # step of the latest prefill
        self._saturated = False
        self.holds_back = False

    def begin(self, rank: Rank, *, preempted: bool) -> None:
        """Decide whether the step to come may prefill; who was `preempted` for it counts as decoding."""
        decodes = bool(rank.decoding or rank.leaving) or preempted
        self.holds_back = decodes and not self._saturated and self._steps_left(rank) > 0

    def end(self, rank: Rank, *, prefilled: bool, queued: bool, preempted: bool) -> None:
        """The batch is chosen; `queued`: somebody was left in the queue."""
        if prefilled:
            self._last = rank.step
        if not self.holds_back and not preempted:
            self._saturated = queued

    def quiet_steps(self, rank: Rank) -> int:
        """Steps for which nobody is let in, while that is the reason."""
        return self._steps_left(rank)

    def _steps_left(self, rank: Rank) -> int:
        if self._shared:
            return (rank.awake_since - rank.step) % self._interval
        return max(0, self._last + self._interval - rank.step)
