"""SGLang's waiting queue: in which order a pass looks at it, and whose cached prefixes are kept alive.

After SGLang 0.5.23 (`schedule_policy.py`): first come first served, with priorities, or the longest cached
prefix first, where a cold call waits for an earlier one that computes the same beginning. Every 32nd pass
with a queue uses what the first calls of it have cached, so that it is evicted last. Left out: the other
policies.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from v4sim.engine.call import Call
from v4sim.engine.rank import Rank

REFRESH_PASSES = 32
SHARED_TOKENS = 32
QUEUE_LIMIT = 128  # of waiting calls whose prefixes are refreshed, and above which lpm falls back to fcfs


@dataclass(slots=True)
class WaitingQueue:
    """One rank's queue; a pass is counted where it looks at somebody."""

    policy: str
    keyless_tokens: int  # at the end of a prompt
    passes: int = 0
    waited: bool = False  # somebody was left over by the last pass, and will be looked at by the next
    steps: int = 0  # of the replica, at the last pass

    def catch_up(self, steps: int) -> None:
        """`steps` of the replica are over; those since the last pass were passes that nobody asked for."""
        if self.waited:
            self.passes += max(0, steps - self.steps - 1)
        self.steps = steps

    @property
    def passes_left(self) -> int:
        """Passes until the next one that refreshes."""
        return -self.passes % REFRESH_PASSES

    def put_in_order(self, rank: Rank, queue: list[Call], visible_ns: int) -> None:
        """Sort the visible calls; a policy that reorders leaves the rank's queue as it is then."""
        if self.policy == "fcfs" or not rank.owner.enabled:
            if any(call.priority for call in queue):
                queue.sort(key=lambda call: -call.priority)
            if self.passes % REFRESH_PASSES == 0:
                for call in reversed(queue[:QUEUE_LIMIT]):
                    self._use_prefix(rank, call)
            self.passes += 1
            return
        if len(queue) <= QUEUE_LIMIT:
            self._longest_match_first(rank, queue)
        rank.waiting = deque([*queue, *[call for call in rank.waiting if call.queued_ns > visible_ns]])

    def _longest_match_first(self, rank: Rank, queue: list[Call]) -> None:
        """Who would compute what an earlier one computes as well comes last: it will hit that instead."""
        keys: dict[int, int] = {}
        cold: list[Call] = []
        for call in queue:
            matched = self._use_prefix(rank, call)
            keys[call.index] = -min(matched, call.prefill_target - 1)
            if matched <= SHARED_TOKENS:
                if any(_share(rank, call, other) for other in cold):
                    keys[call.index] = 1
                else:
                    cold.append(call)
        queue.sort(key=lambda call: keys[call.index])

    def _use_prefix(self, rank: Rank, call: Call) -> int:
        """What of all that a waiting call holds is cached."""
        return rank.owner.look_up(call.uid, call.prefill_target - self.keyless_tokens).tokens


def _share(rank: Rank, call: Call, other: Call) -> bool:
    common = rank.owner.tree.prefixes.common_tokens(call.uid, other.uid)
    return min(common, call.prefill_target, other.prefill_target) >= SHARED_TOKENS
