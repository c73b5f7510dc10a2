"""What the calls of one rank hold of its pools, and what they leave in its cache.

    kv.used  = resident spans + Σ private pages of prefilling and decoding calls
    swa.used = resident windows + Σ windows of admitted calls

A prompt is published chunk by chunk, an answer when its call is released; which window stays with it
differs between the engines.
"""

from __future__ import annotations

from typing import Final

from v4sim.cache.owner import CacheOwner
from v4sim.engine.call import PARKED, RUNNING, Call

# While it decodes, a call's sliding window straddles at most two pages.
DECODE_WINDOW_PAGES: Final = 2


class Holdings:
    """Pools and cache of one rank, as its calls use them.

    `overhead_tokens` of the kv pool are held per running call beyond its history (vLLM keeps windows and
    compressor state in the same blocks). `keeps_windows`: what a call's window has left behind stays
    reusable instead of being freed while it decodes (vLLM). Without it (SGLang) pages are evicted for a
    whole batch at once, and for one more per call. `keyless_tokens`: so many at the end of what a call
    computed cannot be found again (SGLang's keys under EAGLE are bigrams). An owner with `marks` keeps
    windows at those alone (`_publish_with_marks`).
    """

    def __init__(
        self, owner: CacheOwner, *, overhead_tokens: int, keeps_windows: bool, keyless_tokens: int
    ) -> None:
        self.owner = owner
        self.page_tokens = owner.page_tokens
        self.overhead_tokens = overhead_tokens
        self.epoch = 0
        self._keeps_windows = keeps_windows
        self.keyless_tokens = keyless_tokens
        self.evicts_ahead = not keeps_windows

    def pages(self, tokens: int) -> int:
        """`tokens` rounded up to whole pages, in tokens."""
        page = self.page_tokens
        return -(-tokens // page) * page

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
        if not self.evicts_ahead:
            owner.keep_promises(kv_need)
        owner.swa.take(swa_need)
        call.kv_end += kv_need
        call.swa_private += swa_need
        call.state = RUNNING
        return True

    def allocate(self, new_tokens: int, calls: int) -> None:
        """Pages for a batch of prefill chunks, where they are taken together."""
        if self.evicts_ahead:
            self.owner.keep_promises(new_tokens + calls * self.page_tokens)

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

    def _window_from(self, tokens: int) -> int:
        """Where the window begins of a call that knew `tokens`: a page before the last."""
        page = self.page_tokens
        return (tokens - 1) // page * page - page

    def publish(self, call: Call, tokens: int) -> None:
        """Give the whole pages of the first `tokens` of `call` to the tree, but its decode window."""
        owner = self.owner
        if owner.marks is not None:
            self._publish_with_marks(call, tokens)
            return
        tokens -= self.keyless_tokens
        upto = self._published_end(call, tokens)
        window = DECODE_WINDOW_PAGES * self.page_tokens
        held_end = call.held.end if call.held is not None else 0
        spare = call.swa_private - window
        if owner.enabled and upto > held_end:
            # What the tree gains of the window must come from what the call holds beyond its own.
            swa_from = max(held_end, upto - max(0, spare))
            if not self._keeps_windows:
                stops_early = tokens - upto >= self.page_tokens
                left = max(held_end, self._window_from(upto if stops_early else tokens))
                if left < swa_from:
                    spare += self._more_window(call, swa_from - left)
                swa_from = max(left, upto - max(0, spare))
            call.held = owner.adopt(call.uid, call.held, upto, upto - held_end, swa_from, upto - swa_from)
            spare -= upto - swa_from
        if spare > 0:
            owner.swa.give(spare)
        call.swa_private = min(call.swa_private, window)

    def _more_window(self, call: Call, tokens: int) -> int:
        """Room for so much more of a window that stays, or for as much as is free."""
        swa = self.owner.swa
        taken = min(tokens, swa.free // self.page_tokens * self.page_tokens)
        swa.take(taken)
        call.swa_private += taken
        return taken

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
            upto = min(self._published_end(call, content_tokens - self.keyless_tokens), call.kv_end)
            held_end = call.private_from
            if upto > held_end:
                swa_from = max(held_end, upto - self.page_tokens)
                if not self._keeps_windows:
                    least = upto - call.swa_private // self.page_tokens * self.page_tokens
                    swa_from = max(held_end, least)
                    if call.num_steps:
                        swa_from = max(swa_from, self._window_from(content_tokens - unseen_tokens))
                else:
                    swa_from -= self._more_window(call, swa_from - held_end)
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
