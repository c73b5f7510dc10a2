"""Who is on one attention-DP rank: its queue, the calls that run, and how one gets from there to here.

What happens to them once their prefill is complete, and how they leave, is `rank`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from v4sim.cache.legal import Hit
from v4sim.cache.owner import CacheOwner
from v4sim.cache.pool import Reservation
from v4sim.engine.blocked import BlockedLedger
from v4sim.engine.call import RUNNING, WAITING, Call
from v4sim.engine.finishes import FinishQueue
from v4sim.engine.holdings import DECODE_WINDOW_PAGES, Holdings


class Members(Holdings):
    """State of one rank; `index` within its replica, `replica` the replica's number.

    `memory` belongs to the scheduler alone.
    """

    keeps_pools = True  # False: an engine's own cache manager does, and nobody makes room for it here

    def __init__(
        self,
        replica: int,
        index: int,
        owner: CacheOwner,
        *,
        overhead_tokens: int = 0,
        keeps_windows: bool = False,
        keyless_tokens: int = 0,
    ) -> None:
        super().__init__(
            owner,
            overhead_tokens=overhead_tokens,
            keeps_windows=keeps_windows,
            keyless_tokens=keyless_tokens,
        )
        self.replica = replica
        self.index = index
        self.held_back = False  # its decodes wait for a finished call's pages
        self.waiting: deque[Call] = deque()
        self.prefilling: list[Call] = []
        self.decoding: list[Call] = []
        self.leaving: list[Call] = []  # finished, but the engine has not processed that yet
        self.dropped: list[Call] = []  # of those, what lost its memory first; not yet reported
        self.admitted: list[Call] = []  # in the plan that is being made
        self.aborted: list[Call] = []
        self.fresh: list[Call] = []  # prompts computed in the step that just ended, not yet published
        self.walked: list[tuple[Call, int]] = []  # taken out of decode at this clock, to be accounted
        self.clock = 0
        self.last_arrival_ns = -1
        self.last_decode_ns = 0
        self.step = self.awake_since = 0  # steps of the replica before this one, and when it was last idle
        self.settled = (0, 0)  # the latest clocks at which a step was chosen with no decode step in flight
        self.choice_ns = 0  # when the batch that is being chosen begins
        self.share_ns = 0  # time attributed to one row that decoded since the start
        self.decode_alloc = 0  # Σ kv_end of decoding calls, as last allocated
        self.in_flight_tokens: int | None = None  # as the rules say
        self.blocked = BlockedLedger()
        self.finishes = FinishQueue()
        self._admissions = 0
        self.memory: Any = None

    def settle(self) -> None:
        """No decode step is in flight: the next one is chosen knowing all there is."""
        if self.settled[0] != self.clock:
            self.settled = (self.clock, self.settled[0])

    # -- questions ------------------------------------------------------------------------------

    @property
    def num_running(self) -> int:
        """Calls that occupy a request slot."""
        return len(self.prefilling) + len(self.decoding) + len(self.leaving)

    def calls(self) -> Iterable[Call]:
        yield from self.waiting
        yield from self.prefilling
        yield from self.decoding
        yield from self.leaving

    def steps_to_next_finish(self) -> int:
        return self.finishes.next_clock() - self.clock

    # -- queue ----------------------------------------------------------------------------------

    def enqueue(self, call: Call, now_ns: int) -> None:
        call.queued_ns = now_ns
        call.state = WAITING
        self.last_arrival_ns = now_ns
        self.waiting.append(call)

    def block(self, call: Call, reason: str, now_ns: int) -> None:
        """Note what keeps the head of the queue out; the reason stands until membership changes."""
        self.blocked.note(call, reason, now_ns, self.epoch)

    # -- prefill --------------------------------------------------------------------------------

    def try_admit(self, call: Call, hit: Hit, new_tokens: int, now_ns: int, lookahead: int = 0) -> str | None:
        """Move `call` from the queue into prefill with its first `new_tokens`; on failure, what blocks it.

        The prefix must be held already (`call.held`). Nothing changes on failure.
        """
        owner = self.owner
        window = DECODE_WINDOW_PAGES * self.page_tokens
        fresh = max(0, new_tokens - hit.replay_tokens)
        kv_need = self.pages(hit.tokens + fresh + lookahead) - hit.tokens
        swa_need = window + self.pages(new_tokens)
        # A chunk larger than the whole window pool streams through it.
        swa_need = min(swa_need, max(window, owner.swa_available // self.page_tokens * self.page_tokens))
        kv_held = kv_need + self.overhead_tokens
        if kv_held > owner.kv_available:
            return "kv"
        if swa_need > owner.swa_available:
            return "swa"
        if owner.slots.free < 1:
            return "slots"
        if self.evicts_ahead:
            owner.promise_kv(kv_held)
        else:
            owner.make_kv_room(kv_held)
        owner.make_swa_room(swa_need)
        kv_now = 0 if self.evicts_ahead else kv_held
        outcome = Reservation.reserve(owner.pools, {"kv": kv_now, "swa": swa_need, "slots": 1})
        assert isinstance(outcome, Reservation)
        outcome.commit()
        call.kv_end = hit.tokens + kv_need
        call.swa_private = swa_need
        self._enter(call, hit, now_ns)
        owner.use(call.held)
        return None

    def _enter(self, call: Call, hit: Hit, now_ns: int) -> None:
        """`call` has room: from here on it prefills behind its hit."""
        self.blocked.close(now_ns)
        call.replay_tokens = hit.replay_tokens
        call.prefilled = hit.tokens
        if call.admit_ns < 0:
            call.admit_ns = now_ns
            call.hit_tokens = hit.tokens
            call.lost_swa_tokens = hit.lost_tokens
            call.computed_tokens = call.prompt_tokens - hit.tokens
            call.recomputed_tokens += hit.replay_tokens
        else:
            call.recomputed_tokens += call.prefill_target - hit.tokens + hit.replay_tokens
        call.state = RUNNING
        call.outcome = "running"
        self._admissions += 1
        call.admission = self._admissions
        self.prefilling.append(call)
        self.admitted.append(call)
        self.epoch += 1

    def chunk_done(self, call: Call, new_tokens: int, *, late: bool, ends: bool = False) -> None:
        """The step that computed `new_tokens` of `call` ended: count them, publish pages now or late.

        With `ends` it yielded the last token of the answer as well: SGLang then releases at once.
        """
        if call.replay_tokens:
            replayed = min(call.replay_tokens, new_tokens)
            call.replay_tokens -= replayed
            new_tokens -= replayed
        call.prefilled += new_tokens
        if call.kv_end > call.kv_peak_tokens:
            call.kv_peak_tokens = call.kv_end
        if ends and not self._keeps_windows:
            return
        if late:
            self.fresh.append(call)
        else:
            self.publish(call, call.prefilled)

    def publish_fresh(self) -> None:
        """The results of the last step are processed: what it computed becomes reusable."""
        for call in self.fresh:
            self.publish(call, call.prefilled)
        self.fresh.clear()
