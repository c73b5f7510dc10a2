"""One LLM call inside the engine: what it asks for, where it stands, what it holds.

Lengths in tokens, instants in integer nanoseconds (-1: not reached). Few lengths are stored, the
rest are properties. The scheduler may read everything but `output_tokens`: the true output length
is known to the world, not to the engine; `max_new_tokens` is what the client asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import simpy

    from v4sim.cache.node import SpanNode

WAITING: Final = "waiting"
LOADING: Final = "loading"
PARKED: Final = "parked"
RUNNING: Final = "running"
FINISHED: Final = "finished"
_NO_STEPS: NDArray[np.int64] = np.zeros(0, dtype=np.int64)


class Call:
    """Created when its dependencies are done; lives until the engine has released it."""

    __slots__ = (
        "admission",
        "admit_ns",
        "bound_tokens",
        "branch_tokens",
        "clock0",
        "computed_tokens",
        "copy",
        "done",
        "emit_ns",
        "event_class",
        "first_token_ns",
        "foreseen",
        "generated",
        "held",
        "hit_host_tokens",
        "hit_storage_tokens",
        "hit_tokens",
        "hung_up",
        "index",
        "join_order",
        "kv_end",
        "kv_peak_tokens",
        "last_token_ns",
        "lost_swa_tokens",
        "max_new_tokens",
        "num_steps",
        "offset",
        "outcome",
        "output_tokens",
        "overshot",
        "padded",
        "phases",
        "prefilled",
        "priority",
        "prompt_tokens",
        "queued_ns",
        "rank",
        "ready_ns",
        "recomputed_tokens",
        "replay_tokens",
        "replica",
        "retractions",
        "row",
        "sent_ns",
        "session",
        "share0_ns",
        "share_ns",
        "starts",
        "state",
        "swa_private",
        "trigger",
        "uid",
        "verify_steps",
        "waits",
    )

    def __init__(
        self,
        *,
        index: int,
        row: int,
        uid: int,
        session: int,
        copy: int,
        trigger: int,
        event_class: int,
        prompt_tokens: int,
        output_tokens: int,
        max_new_tokens: int,
        priority: int,
        bound_tokens: int,
        ready_ns: int,
        sent_ns: int,
        done: simpy.Event,
    ) -> None:
        self.index = index
        self.row = row
        self.uid = uid
        self.session = session
        self.copy = copy
        self.trigger = trigger
        self.event_class = event_class
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.max_new_tokens = max_new_tokens
        self.priority = priority
        self.bound_tokens = bound_tokens
        self.ready_ns = ready_ns
        self.sent_ns = sent_ns
        self.done = done
        self.outcome = "queued"
        self.state = WAITING
        self.overshot = False  # computed once more after its last token
        self.foreseen = False  # the engine knew that its last step would be its last
        self.hung_up = False  # its client waits no longer, and the engine knows
        self.replica = self.rank = -1
        self.queued_ns = self.admit_ns = self.first_token_ns = self.last_token_ns = self.emit_ns = -1
        self.waits: list[tuple[str, int]] = []
        # Cache
        self.held: SpanNode | None = None
        self.kv_end = 0  # device history reaches to here, page-rounded (tree + private)
        self.swa_private = 0
        self.hit_tokens = self.hit_host_tokens = self.hit_storage_tokens = 0
        self.lost_swa_tokens = 0
        self.branch_tokens = 0  # where its prefix was resident without a window, which it will leave there
        self.kv_peak_tokens = 0
        # Prefill
        self.generated = 0  # output tokens emitted before the current (re-)prefill
        self.prefilled = 0  # content tokens whose KV exists
        self.replay_tokens = 0  # of the prefix, still to be computed again
        self.computed_tokens = 0
        self.recomputed_tokens = 0
        self.padded = False  # its last prefill step was as wide as a verify step
        # Decode
        self.phases: NDArray[np.int64] | None = None
        self.starts: NDArray[np.int64] = _NO_STEPS
        self.offset = 0
        self.num_steps = 0
        self.clock0 = 0
        self.join_order = 0
        self.admission = 0  # number of its latest admission on its rank
        self.verify_steps = 0
        self.retractions = 0
        self.share0_ns = self.share_ns = 0

    @property
    def prefill_target(self) -> int:
        """Content tokens that must be in KV before the next token can be sampled."""
        return self.prompt_tokens + self.generated

    @property
    def prefill_left(self) -> int:
        """Tokens still to compute, replayed ones included."""
        return self.prefill_target - self.prefilled + self.replay_tokens

    @property
    def private_from(self) -> int:
        """Content below this is held through the tree."""
        return self.held.end if self.held is not None else 0

    def context_at(self, clock: int) -> int:
        """Tokens in KV at this decode clock of its rank."""
        return self.prompt_tokens + self.emitted_at(clock) - 1

    def held_context(self, clock: int, in_flight_tokens: int | None, settled: tuple[int, int]) -> int:
        """Context from which pages are counted at this decode clock of its rank.

        With tokens in flight it is the one before the step in flight, as if that accepted every draft.
        """
        if in_flight_tokens is None or (in_flight_tokens == 0 and clock in settled):
            return self.context_at(clock)
        if clock > self.clock0:
            return self.context_at(clock - 1) + in_flight_tokens
        return self.context_at(clock) + (in_flight_tokens - 1 if self.padded else 0)

    def emitted_at(self, clock: int) -> int:
        """Output tokens that exist at this decode clock of its rank."""
        step = clock - self.clock0
        return self.starts.item(step) if step < self.num_steps else self.output_tokens

    def __repr__(self) -> str:
        return f"<Call {self.index} row {self.row} {self.state} {self.prompt_tokens}+{self.output_tokens}>"
