"""One attention-DP rank: how its calls decode and leave, and what becomes of the cache they hold.

Verbs only, no sequence: the scheduler decides who is admitted, the replica when a step ends. Every
verb keeps the pools in step with what calls hold (`holdings`).

`epoch` counts changes of membership; whatever depends only on who is here may be reused while it
stands still.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter

from v4sim.engine.call import FINISHED, WAITING, Call
from v4sim.engine.members import Members


class Rank(Members):
    """One rank: decode, and every way out of it."""

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
        if self.blocked.head is call:
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
