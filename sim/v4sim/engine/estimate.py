"""SGLang's admission estimate: how much of the announced output to hold room for, and what a pass may spend.

After SGLang 0.5.23 (`new_token_ratio_tracker.py`, `schedule_policy.py`). Reads what the client asked for,
never the true length of an answer. Units: tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from v4sim.engine.late import known_tokens
from v4sim.engine.rank import Rank

if TYPE_CHECKING:
    from v4sim.engine.sglang import SGLangRules

RETRACT_DECODE_STEPS = 20
RATIO_INITIAL, RATIO_FLOOR_FACTOR, RATIO_DECAY_STEPS = 0.7, 0.14, 600


class NewTokenRatio:
    """Share of the announced output that admission holds room for; falls while nothing is retracted.

    Kept as (base, steps since), so that k steps at once equal k single steps exactly.
    """

    __slots__ = ("_base", "_steps", "decay", "floor", "initial")

    def __init__(self, conservativeness: float) -> None:
        self.initial = min(RATIO_INITIAL * conservativeness, 1.0)
        self.floor = self.initial * RATIO_FLOOR_FACTOR
        self.decay = (self.initial - self.floor) / RATIO_DECAY_STEPS
        self._base = self.initial
        self._steps = 0

    @property
    def value(self) -> float:
        return max(self.floor, self._base - self.decay * max(self._steps, 0))

    def step(self, steps: int) -> None:
        self._steps += steps

    def retracted(self, generated: int, requests: int, announced: int) -> None:
        """What remains running, after a retraction; the step that this made room for does not decay."""
        self._base = min(1.0, (generated + RETRACT_DECODE_STEPS * requests) / (announced + 1))
        self._steps = -1

    def reset(self) -> None:
        self._base = self.initial
        self._steps = 0


class Budget:
    """What one pass may still spend on a rank. `total` is worked out when an admission asks for it."""

    __slots__ = ("_charged", "_rank", "_rules", "chunk", "input", "open", "ratio", "reserved_output")

    def __init__(self, rules: SGLangRules, rank: Rank, ratio: float) -> None:
        self._rules = rules
        self._rank = rank
        self.ratio = ratio
        self.reserved_output = -1
        running = len(rank.decoding) + len(rank.leaving) if rules.mixes else 0
        self._charged = running
        self.chunk = None if rules.chunk_tokens is None else rules.chunk_tokens - running
        self.input = rules.max_prefill_tokens - running
        self.open = True

    def total(self) -> float:
        """Tokens that may still be promised: free and evictable, less what running calls may need.

        What this pass admitted is charged by its rounded length, whatever pages it takes.
        """
        if self.reserved_output < 0:
            rank, late = self._rank, self._rules.late_results
            clip = self._rules.clip_max_new_tokens
            running = rank.decoding + rank.leaving if rank.leaving else rank.decoding
            reserved = 0
            for call in running:
                reserved += max(0, min(call.max_new_tokens - known_tokens(rank, call, late=late), clip))
            self.reserved_output = reserved
        owner = self._rank.owner
        return owner.kv_available + owner.kv_promised - self.reserved_output * self.ratio - self._charged

    def growth_per_step(self) -> float:
        """Upper bound of what one decode step can add to `total`: emitted tokens and the decay."""
        rank, rules = self._rank, self._rules
        emitted = len(rank.decoding) * (1 + rules.draft_alloc_tokens)
        decay = rules.memory(rank).ratio.decay
        return emitted * self.ratio + decay * self.reserved_output

    def charge(self, rounded_tokens: int, reserved_tokens: int) -> None:
        """Book a chunk; `reserved_tokens` are promised beyond it."""
        self._charged += rounded_tokens + reserved_tokens
        self.input -= rounded_tokens
        if self.chunk is not None:
            self.chunk -= rounded_tokens
        if self.input <= 0 or (self.chunk is not None and self.chunk <= 0):
            self.open = False
