"""One attention-DP rank: its queue, its running calls and the cache they hold.

Verbs only, no sequence: the scheduler decides who is admitted, the replica when a step ends. Every
verb keeps the pools in step with what calls hold (`holdings`).

`epoch` counts changes of membership; whatever depends only on who is here may be reused while it
stands still.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from v4sim.cache.legal import Hit
from v4sim.cache.owner import CacheOwner
from v4sim.cache.pool import Reservation
from v4sim.engine.blocked import BlockedLedger
from v4sim.engine.call import FINISHED, RUNNING, WAITING, Call
from v4sim.engine.finishes import FinishQueue
from v4sim.engine.holdings import DECODE_WINDOW_PAGES, Holdings


class Rank(Holdings):
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

    # -- decode ---------------------------------------------------------------------------------

    def join_decode(self, call: Call, now_ns: int) -> None:
        """A call whose prefill is complete starts to decode with the rank's next decode step."""
        self.prefilling.remove(call)
        call.emit_ns = now_ns
        call.clock0 = self.clock
        call.share0_ns = self.share_ns
        self.decoding.append(call)
        self.decode_alloc += call.kv_end
        self.finishes.push(call)
        self.epoch += 1

    def take_finished(self) -> list[Call]:
        """Remove and return the calls whose last step just ended."""
        done = self.finishes.pop_due(self.clock)
        for call in done:
            self.decoding.remove(call)
        return done

    def set_decode_alloc(self, tokens: int) -> None:
        """Pages of all decoding calls together, in tokens; room must have been made."""
        grown = tokens - self.decode_alloc
        self.owner.kv.take(max(0, grown))
        self.owner.kv.give(max(0, -grown))
        self.decode_alloc = tokens

    def trim_decode_alloc(self, lookahead_tokens: int) -> None:
        """Give back pages that were taken for the step to come for calls that will not be in it."""
        self.set_decode_alloc(
            sum(
                self.pages(
                    call.held_context(self.clock, self.in_flight_tokens, self.settled) + lookahead_tokens
                )
                for call in self.decoding
            )
        )

    def leave_decode(self, call: Call, lookahead_tokens: int, *, in_step: bool = False) -> None:
        """`call` no longer decodes; its pages stay with it, sized as in its last step.

        With `in_step` that is one which has taken its pages, but is not over.
        """
        executed = min(self.clock - call.clock0 + in_step, call.num_steps)
        if executed > 0:
            # Without a step since joining, what it holds is what its prefill allocated.
            last = call.held_context(call.clock0 + executed - 1, self.in_flight_tokens, self.settled)
            call.kv_end = self.pages(last + lookahead_tokens)
        call.kv_peak_tokens = max(call.kv_peak_tokens, call.kv_end)
        call.share_ns += self.share_ns - call.share0_ns
        self.decode_alloc -= call.kv_end

    def pause(self, call: Call, lookahead_tokens: int) -> None:
        """`call` is left out of a decode step: it goes on like a prompt, by its newest token.

        That is a verify step too, be it that it yields no draft.
        """
        self._stop_decode(call, lookahead_tokens)
        call.prefilled = call.prefill_target - 1
        call.recomputed_tokens += 1
        call.verify_steps += 1
        insort(self.prefilling, call, key=attrgetter("admission"))
        self.epoch += 1

    def retract(
        self,
        call: Call,
        lookahead_tokens: int,
        *,
        keep: bool,
        to_front: bool,
        content_tokens: int | None = None,
    ) -> None:
        """Take a running call out, to queue again; `keep` its pages, or of its first `content_tokens`."""
        self._take_out(call, lookahead_tokens, keep, content_tokens)
        call.retractions += 1
        call.state = WAITING
        if to_front:
            self.waiting.appendleft(call)
        else:
            self.waiting.append(call)

    def drop(self, call: Call, content_tokens: int) -> None:
        """Take the memory of a call whose end the engine does not know of; so much of it stays cached."""
        self.leaving.remove(call)
        if call in self.fresh:
            self.fresh.remove(call)
        self.release(call, content_tokens, keep=True)
        self.dropped.append(call)

    def abort(self, call: Call, lookahead_tokens: int) -> None:
        """End a running call that can never fit; it waits in `aborted` for the replica to report it."""
        self._take_out(call, lookahead_tokens, keep=False)
        call.outcome = "aborted"
        call.state = FINISHED
        self.aborted.append(call)

    def hang_up(self, call: Call, lookahead_tokens: int, content_tokens: int, *, keep: bool) -> None:
        """Take the memory of a running call whose client is gone, be it that a step with it is under way."""
        self._take_out(call, lookahead_tokens, keep, content_tokens, in_step=True)
        call.outcome, call.state = "aborted", FINISHED

    def leave_queue(self, call: Call, now_ns: int) -> None:
        """`call` waits no longer: its client is gone."""
        if self.waiting[0] is call:
            self.blocked.close(now_ns)
        self.waiting.remove(call)
        call.outcome, call.state = "aborted", FINISHED
        self.epoch += 1

    def _take_out(
        self,
        call: Call,
        lookahead_tokens: int,
        keep: bool,
        content_tokens: int | None = None,
        *,
        in_step: bool = False,
    ) -> None:
        if call.join_order > 0:
            content = call.context_at(self.clock)
            self._stop_decode(call, lookahead_tokens, in_step=in_step)
        else:
            self.prefilling.remove(call)
            content = call.prefilled
        self.release(call, content if content_tokens is None else content_tokens, keep)
        call.prefilled = call.replay_tokens = 0

    def _stop_decode(self, call: Call, lookahead_tokens: int, *, in_step: bool = False) -> None:
        """`call` decodes no more for now; whoever takes it up again starts after what it has yielded."""
        self.decoding.remove(call)
        self.leave_decode(call, lookahead_tokens, in_step=in_step)
        if self.clock > call.clock0:
            call.emit_ns = self.last_decode_ns  # its latest token; the next comes after a prefill
        if call in self.fresh:
            self.fresh.remove(call)
        self.walked.append((call, self.clock))
        call.generated = call.emitted_at(self.clock)
        call.verify_steps += self.clock - call.clock0
        call.join_order = 0

    def drop_head(self, outcome: str, now_ns: int) -> Call:
        """Give up on the call that was refused: the head of the queue, which priorities may put elsewhere."""
        call = self.blocked.head
        if call is None or call not in self.waiting:
            call = self.waiting[0]
        self.waiting.remove(call)
        self.blocked.close(now_ns)
        call.outcome = outcome
        call.state = FINISHED
        self.epoch += 1
        return call

    def calls(self) -> Iterable[Call]:
        yield from self.waiting
        yield from self.prefilling
        yield from self.decoding
        yield from self.leaving
