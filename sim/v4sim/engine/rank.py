"""One attention-DP rank: its queue, its running calls and the cache they hold.

Verbs only, no sequence: the scheduler decides who is admitted, the replica when a step ends. Every
verb keeps the pools in step with what calls hold:

    kv.used  = resident spans + Σ private pages of prefilling and decoding calls
    swa.used = resident windows + Σ windows of admitted calls

`epoch` counts changes of membership; whatever depends only on who is here may be reused while it
stands still.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from v4sim.cache.legal import Hit
from v4sim.cache.owner import CacheOwner
from v4sim.cache.pool import Reservation
from v4sim.engine.blocked import BlockedLedger
from v4sim.engine.call import FINISHED, PARKED, RUNNING, WAITING, Call
from v4sim.engine.finishes import FinishQueue

# While it decodes, a call's sliding window straddles at most two pages.
DECODE_WINDOW_PAGES = 2


class Rank:
    """State of one rank; `index` within its replica, `replica` the replica's number.

    `memory` belongs to the scheduler alone. `overhead_tokens` of the kv pool are held per running call
    beyond its history (vLLM keeps windows and compressor state in the same blocks). `keeps_windows`:
    what a call's window has left behind stays reusable instead of being freed while it decodes (vLLM).
    Without it (SGLang) pages are evicted for a whole batch at once, and for one more per call.
    `keyless_tokens`: so many at the end of what a call computed cannot be found again (SGLang's keys under
    EAGLE are bigrams).
    An owner with `marks` keeps windows at those alone (`_publish_with_marks`).
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
        self.replica = replica
        self.index = index
        self.owner = owner
        self.page_tokens = owner.page_tokens
        self.overhead_tokens = overhead_tokens
        self._keeps_windows = keeps_windows
        self._keyless_tokens = keyless_tokens
        self._evicts_ahead = not keeps_windows
        self.held_back = False  # its decodes wait for a finished call's pages
        self.steps = 0  # of its replica
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
        self.epoch = 0
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

    def pages(self, tokens: int) -> int:
        """`tokens` rounded up to whole pages, in tokens."""
        page = self.page_tokens
        return -(-tokens // page) * page

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
        if self._evicts_ahead:
            owner.promise_kv(kv_held)
        else:
            owner.make_kv_room(kv_held)
        owner.make_swa_room(swa_need)
        kv_now = 0 if self._evicts_ahead else kv_held
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

    def try_extend(self, call: Call, new_tokens: int, lookahead: int = 0) -> bool:
        """Pages for the next chunk of a call in prefill; False (nothing changed) parks it for this pass."""
        owner, page = self.owner, self.page_tokens
        fresh = max(0, new_tokens - call.replay_tokens)
        upto = call.prefilled + fresh + lookahead
        kv_need = max(0, -(-upto // page) * page - call.kv_end)
        swa_need = max(0, (DECODE_WINDOW_PAGES - (-new_tokens // page)) * page - call.swa_private)
        if swa_need > owner.swa.free:
            swa_need = min(swa_need, owner.swa_available // page * page)
        if kv_need > owner.kv_available or not owner.make_swa_room(swa_need):
            call.state = PARKED
            return False
        owner.promise_kv(kv_need)
        if not self._evicts_ahead:
            owner.keep_promises(kv_need)
        owner.swa.take(swa_need)
        call.kv_end += kv_need
        call.swa_private += swa_need
        call.state = RUNNING
        return True

    def allocate(self, new_tokens: int, calls: int) -> None:
        """Pages for a batch of prefill chunks, where they are taken together."""
        if self._evicts_ahead:
            self.owner.keep_promises(new_tokens + calls * self.page_tokens)

    def make_cushion(self, rows: int) -> None:
        """Before a decode step of `rows`: a page per row is free, needed or not, if it can be evicted."""
        if self._evicts_ahead:
            owner = self.owner
            owner.make_kv_room(min(rows * self.page_tokens, owner.kv_available))

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

    def _published_end(self, call: Call, tokens: int) -> int:
        """How much of the first `tokens` of a call becomes resident: whole pages.

        Where its own lookup found history but no window, SGLang stops, for once, to leave a window
        there; the rest follows with what the call publishes next.
        """
        branch, call.branch_tokens = call.branch_tokens, 0
        if call.private_from < branch <= tokens:
            return branch
        call.branch_tokens = branch if branch > tokens else 0
        return tokens // self.page_tokens * self.page_tokens

    def _window_from(self, tokens: int, upto: int) -> int:
        """Where the window begins that is left at `upto` by a call with `tokens`: a page before the last."""
        page = self.page_tokens
        last = tokens - 1 if tokens - upto < page else upto - 1
        return last // page * page - page

    def publish(self, call: Call, tokens: int) -> None:
        """Give the whole pages of the first `tokens` of `call` to the tree, but its decode window."""
        owner = self.owner
        if owner.marks is not None:
            self._publish_with_marks(call, tokens)
            return
        tokens -= self._keyless_tokens
        upto = self._published_end(call, tokens)
        window = DECODE_WINDOW_PAGES * self.page_tokens
        held_end = call.held.end if call.held is not None else 0
        spare = call.swa_private - window
        if owner.enabled and upto > held_end:
            # What the tree gains of the window must come from what the call holds beyond its own.
            swa_from = max(held_end, upto - max(0, spare))
            if not self._keeps_windows:
                swa_from = max(swa_from, self._window_from(tokens, upto))
            call.held = owner.adopt(call.uid, call.held, upto, upto - held_end, swa_from, upto - swa_from)
            spare -= upto - swa_from
        if spare > 0:
            owner.swa.give(spare)
        call.swa_private = min(call.swa_private, window)

    def _publish_with_marks(self, call: Call, tokens: int) -> None:
        """`publish` where windows stay at two places only (vLLM's retention interval of 0).

        At the last page boundary below the end of the prompt, where the same prompt could resume; and
        where the call's own lookup found history without a window, since others may part there too.
        """
        owner, page = self.owner, self.page_tokens
        begin, upto = call.private_from, tokens // page * page
        if owner.enabled and upto > begin:
            call.held = owner.adopt(call.uid, call.held, upto, upto - begin, upto, 0)
            for at in ((call.prompt_tokens - 1) // page * page, call.branch_tokens):
                if begin < at <= upto:
                    owner.mark(call.uid, at)
        spare = max(0, call.swa_private - DECODE_WINDOW_PAGES * page)
        owner.swa.give(spare)
        call.swa_private -= spare

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

    def leave_decode(self, call: Call, lookahead_tokens: int) -> None:
        """`call` no longer decodes; its pages stay with it, sized as in its last step."""
        executed = min(self.clock - call.clock0, call.num_steps)
        if executed > 0:
            # Without a step since joining, what it holds is what its prefill allocated.
            last = call.held_context(call.clock0 + executed - 1, self.in_flight_tokens, self.settled)
            call.kv_end = self.pages(last + lookahead_tokens)
        call.kv_peak_tokens = max(call.kv_peak_tokens, call.kv_end)
        call.share_ns += self.share_ns - call.share0_ns
        self.decode_alloc -= call.kv_end

    def release(self, call: Call, content_tokens: int, keep: bool, *, unseen_tokens: int = 0) -> None:
        """Free what a finished, retracted or aborted call holds.

        With `keep`, whole pages of its content up to `content_tokens` become resident first, with the
        sliding window that it still held, or of as many as there is room for (`keeps_windows`). The last
        `unseen_tokens` were not known when it last dropped what had left its window.
        """
        owner = self.owner
        if keep and owner.marks is not None:
            self._publish_with_marks(call, min(content_tokens, call.kv_end))
            owner.use(call.held)
        elif keep and owner.enabled:
            upto = min(self._published_end(call, content_tokens - self._keyless_tokens), call.kv_end)
            held_end = call.private_from
            if upto > held_end:
                swa_from = max(held_end, upto - self.page_tokens)
                if not self._keeps_windows:
                    least = upto - call.swa_private // self.page_tokens * self.page_tokens
                    window = (
                        held_end
                        if call.num_steps == 0
                        else self._window_from(content_tokens - unseen_tokens, upto)
                    )
                    swa_from = max(held_end, least, window)
                else:
                    older = min(swa_from - held_end, owner.swa.free // self.page_tokens * self.page_tokens)
                    owner.swa.take(older)
                    call.swa_private += older
                    swa_from -= older
                call.held = owner.adopt(call.uid, call.held, upto, upto - held_end, swa_from, upto - swa_from)
                call.swa_private -= upto - swa_from
            owner.use(call.held)
        owner.kv.give(call.kv_end - call.private_from + self.overhead_tokens)
        owner.swa.give(call.swa_private)
        owner.slots.give(1)
        owner.release(call.held)
        call.held = None
        call.kv_end = call.swa_private = 0
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

    def _take_out(
        self, call: Call, lookahead_tokens: int, keep: bool, content_tokens: int | None = None
    ) -> None:
        if call.join_order > 0:
            content = call.context_at(self.clock)
            self._stop_decode(call, lookahead_tokens)
        else:
            self.prefilling.remove(call)
            content = call.prefilled
        self.release(call, content if content_tokens is None else content_tokens, keep)
        call.prefilled = call.replay_tokens = 0

    def _stop_decode(self, call: Call, lookahead_tokens: int) -> None:
        """`call` decodes no more for now; whoever takes it up again starts after what it has yielded."""
        self.decoding.remove(call)
        self.leave_decode(call, lookahead_tokens)
        if self.clock > call.clock0:
            call.emit_ns = self.last_decode_ns  # its latest token; the next comes after a prefill
        if call in self.fresh:
            self.fresh.remove(call)
        self.walked.append((call, self.clock))
        call.generated = call.emitted_at(self.clock)
        call.verify_steps += self.clock - call.clock0
        call.join_order = 0

    def drop_head(self, outcome: str, now_ns: int) -> Call:
        """Give up on the call at the head of the queue."""
        call = self.waiting.popleft()
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
