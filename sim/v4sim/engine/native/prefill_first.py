"""The rules around an engine whose step is a prefill or a decode, as SGLang's is.

Order at the end of step i, as in SGLang's loop: every rank chooses a prefill for step i+1; where a rank has
none, it chooses what decodes, unless another rank's prefill stops it (drafts under attention DP: the
replica's affair, as with a modelled scheduler). With late results (overlap) the ranks choose first,
knowing arrivals up to the start of step i, and then hear what it yielded.

What the replica stands for between ranks: the exchange of modes in every round. What it tells the engine:
that some rank prefilled, and that a round went by with nothing to run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from v4sim.engine.call import FINISHED
from v4sim.engine.chunk import Chunk
from v4sim.engine.native.base import Batch, PrefillFirst, Row
from v4sim.engine.native.rank import NativeRank
from v4sim.engine.native.rules import NativeRules
from v4sim.engine.rank import Rank


@dataclass(frozen=True, slots=True)
class PrefillFirstRules(NativeRules):
    """`counts_rounds`: the engine counts rounds (prefill-decode interval) and is asked when idle as well."""

    mixes: bool = False
    decodes_first: bool = False
    counts_rounds: bool = False

    def plan(self, rank: Rank, now_ns: int, visible_ns: int) -> list[Chunk]:
        assert isinstance(rank, NativeRank)
        rank.held_back = False
        if rank.idle and not self.counts_rounds:
            return []
        if rank.passed_over or not self.late_results:
            rank.hand_over()
        rank.passed_over = True
        rank.feed(visible_ns)
        batch = rank.engine.schedule()
        if not batch.rows:
            if not self.counts_rounds:
                self._note_what_blocks(rank, batch, now_ns, visible_ns)
            return []
        self._hear(rank, batch)
        if self.mixes:
            self._decode_only(rank, batch)
        chunks = self._prefill(rank, batch, now_ns)
        self._note_what_blocks(rank, batch, now_ns, visible_ns)
        return chunks

    def make_decode_room(self, rank: Rank, needed_tokens: int) -> bool:
        """The engine chooses what decodes; who loses its place for that goes to the end of the queue."""
        assert isinstance(rank, NativeRank)
        if not rank.passed_over:
            return False
        batch = cast(PrefillFirst, rank.engine).decode()
        for index in batch.preempted:
            self._preempt(rank, index)
        for index in batch.aborted:
            if index in rank.known:
                rank.abort(rank.known[index], self.decode_alloc_tokens(1))
        rank.held_back = bool(rank.decoding) and not batch.rows
        if not rank.held_back:
            self._decode_only(rank, batch)
        self._hear(rank, batch)
        return False

    def _hear(self, rank: NativeRank, batch: Batch) -> None:
        """Its batch is chosen: the engine hears of the step before."""
        rank.hand_over()
        rank.running = batch if batch.rows else None
        rank.passed_over = False
        rank.show_pools()

    def _preempt(self, rank: NativeRank, index: int) -> None:
        """The token in flight, which the engine does not know, is lost and computed again."""
        call = rank.known.get(index)
        if call is None:
            return  # given up, and still in the engine's step
        if call.state == FINISHED:  # it was the last, and its client has it
            rank.drop(call, 0)
            rank.forget(call)
            return
        known = rank.known_tokens(call)
        rank.retract(call, self.decode_alloc_tokens(1), keep=False, to_front=False)
        call.generated = known

    def _charge(self, rank: Rank, row: Row) -> int:
        return rank.pages(row.tokens)

    def after_extend(self, rank: Rank) -> None:
        assert isinstance(rank, NativeRank)
        cast(PrefillFirst, rank.engine).saw_prefill()

    def on_idle(self, rank: Rank) -> None:
        assert isinstance(rank, NativeRank)
        cast(PrefillFirst, rank.engine).on_idle()
