"""A rank whose cache and queue are an engine's own: it follows what the engine decided.

The engine holds the pages; the pools here only show them (`kv` and `swa` are what running calls hold, the
engine's own gauge; a prefix that nobody uses is free memory to it). The tree of spans stays empty. vLLM's
window pool has no size of its own, since windows are blocks like any other.

    kv.used = pages in use, in tokens          slots.used = calls that run or leave
"""

from __future__ import annotations

from v4sim.cache.legal import Hit
from v4sim.cache.owner import CacheOwner
from v4sim.cache.pool import Pool
from v4sim.engine.call import FINISHED, Call
from v4sim.engine.native.base import Batch, Engine, Request
from v4sim.engine.rank import Rank


class NativeRank(Rank):
    """State of one rank. `engine` decides; `known` are the calls that it has and has not seen the end of."""

    keeps_pools = False

    def __init__(
        self,
        replica: int,
        index: int,
        owner: CacheOwner,
        engine: Engine,
        *,
        overhead_tokens: int,
        max_context_tokens: int,
    ) -> None:
        super().__init__(replica, index, owner, overhead_tokens=overhead_tokens, keeps_windows=True)
        self.engine = engine
        self.known: dict[int, Call] = {}
        self.running: Batch | None = None  # its results have not been handed over
        self.passed_over = False  # the last choice left this rank without a batch
        self._told: dict[int, int] = {}  # output tokens by call
        self._max_context = max_context_tokens

    @property
    def idle(self) -> bool:
        """The engine has nothing to do and nothing to hear of."""
        return not (self.known or self.waiting or self.running)

    # -- towards the engine ---------------------------------------------------------------------

    def feed(self, visible_ns: int) -> None:
        """Calls that reached the queue by now become requests."""
        for call in self.waiting:
            if call.index not in self.known and call.queued_ns <= visible_ns:
                self.known[call.index] = call
                self._told[call.index] = 0
                self.engine.add(
                    Request(call.index, call.uid, call.prompt_tokens, self._limit(call), call.priority)
                )

    def _limit(self, call: Call) -> int:
        """The client's limit, or the model's where the trace states none that the answer kept."""
        if call.output_tokens <= call.max_new_tokens:
            return call.max_new_tokens
        return self._max_context - call.prompt_tokens

    def hand_over(self) -> None:
        """Tell the engine what its last step yielded, by what its calls have by now."""
        batch, self.running = self.running, None
        if batch is None:
            return
        yields: dict[int, int] = {}
        ended = set()
        for row in batch.rows:
            call = self.known.get(row.number)
            if call is None:
                continue  # it was computed once more after its end
            total = self._tokens_out(call)
            yields[row.number] = total - self._told[row.number]
            self._told[row.number] = total
            if call.state == FINISHED:
                ended.add(row.number)
                del self.known[row.number], self._told[row.number]
        self.engine.hand_over(yields, frozenset(ended))

    def _tokens_out(self, call: Call) -> int:
        if call.state == FINISHED:
            return call.output_tokens
        return call.emitted_at(self.clock) if call.join_order > 0 else call.generated

    def known_tokens(self, call: Call) -> int:
        """Output tokens that the engine has heard of."""
        return self._told[call.index]

    # -- after the engine -----------------------------------------------------------------------

    def enter(self, call: Call, hit_tokens: int, lost_tokens: int, now_ns: int) -> None:
        """The engine admitted a call that waits, behind a prefix that its cache has."""
        self.waiting.remove(call)
        self.owner.slots.take(1)
        self._enter(call, Hit(None, hit_tokens, 0, lost_tokens), now_ns)

    def extend(self, call: Call, tokens: int) -> None:
        """The engine computes the next `tokens` of a call that prefills."""
        call.kv_end = self.pages(call.prefilled + tokens)

    def show_pools(self) -> None:
        """Bring the pools to what the engine holds."""
        _set(self.owner.kv, self.engine.used_tokens)
        _set(self.owner.swa, self.engine.used_window_tokens)

    # -- verbs of a rank, without pools of its own ----------------------------------------------

    def publish(self, call: Call, tokens: int) -> None:
        return  # the engine hashes its blocks itself

    def release(self, call: Call, content_tokens: int, keep: bool, unseen_tokens: int = 0) -> None:
        call.kv_end = 0
        self.owner.slots.give(1)
        self.show_pools()
        self.epoch += 1

    def abort(self, call: Call, lookahead_tokens: int) -> None:
        self.forget(call)
        super().abort(call, lookahead_tokens)

    def drop_head(self, outcome: str, now_ns: int) -> Call:
        call = super().drop_head(outcome, now_ns)
        self.forget(call)
        return call

    def forget(self, call: Call) -> None:
        """The engine is told that it need not go on with `call`."""
        if self.known.pop(call.index, None) is not None:
            del self._told[call.index]
            self.engine.drop(call.index)


def _set(pool: Pool, used: int) -> None:
    pool.take(max(0, used - pool.used))
    pool.give(max(0, pool.used - used))
