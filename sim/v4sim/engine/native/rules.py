"""An engine's own decisions as a `Scheduler`: asked once a step, put into the verbs of a rank.

Order at the end of step i, as in vLLM's loop. Without late results: the engine is told what step i
yielded, then chooses step i+1. With them (async scheduling) it chooses first, knowing arrivals up to the
start of step i, and is told afterwards.

A decode of the simulator runs every step of its rank at its full verify width. Where the engine leaves
one out of a step or cuts its drafts, the call pauses and goes on like a prompt with one token left. What
such a row, or a newcomer that vLLM pads to the verify width, holds beyond that token is padding.

Step by step only: nobody can promise what another's scheduler will do.
"""

from __future__ import annotations

from dataclasses import dataclass

from v4sim.engine.call import WAITING, Call
from v4sim.engine.chunk import Chunk
from v4sim.engine.native.base import Batch, Row
from v4sim.engine.native.rank import NativeRank
from v4sim.engine.rank import Rank
from v4sim.errors import LawError


@dataclass(frozen=True, slots=True)
class NativeRules:
    """What the simulator must know of the engine beside its decisions."""

    max_batched_tokens: int
    max_num_seqs: int
    draft_tokens: int
    late_results: bool
    mixes: bool = True
    decodes_first: bool = True
    reorders: bool = False
    plans_always: bool = True
    keeps_output: bool = True
    foresees_limits: bool = False  # the engine shows it by leaving an ended call out of a step
    keeps_last_token: bool = False
    publishes_late: bool = False
    computes_aborted: bool = False
    in_flight_tokens: int | None = None  # pages are the engine's own affair

    def hashed_in_flight(self, rank: Rank, call: Call) -> int:
        raise NotImplementedError("an engine's own scheduler is not told of clients that hang up")

    def plan(self, rank: Rank, now_ns: int, visible_ns: int) -> list[Chunk]:
        assert isinstance(rank, NativeRank)
        if rank.idle:
            return []
        if not self.late_results:
            rank.hand_over()
        rank.feed(visible_ns)
        batch = rank.engine.schedule()
        rank.hand_over()
        rank.running = batch if batch.rows else None
        rank.show_pools()
        chunks = self._follow(rank, batch, now_ns)
        self._note_what_blocks(rank, batch, now_ns, visible_ns)
        return chunks

    def _follow(self, rank: NativeRank, batch: Batch, now_ns: int) -> list[Chunk]:
        for index in batch.preempted:
            self._preempt(rank, index)
        self._decode_only(rank, batch)
        return self._prefill(rank, batch, now_ns)

    def _preempt(self, rank: NativeRank, index: int) -> None:
        call = rank.known.get(index)
        if call is not None:
            rank.retract(call, self.decode_alloc_tokens(1), keep=True, to_front=True)
        else:  # its last token came in the step that just ended, which the engine did not know
            rank.drop(next(call for call in rank.leaving if call.index == index), 0)

    def _decode_only(self, rank: NativeRank, batch: Batch) -> None:
        """Who decodes and is not in the batch, or not with all of its drafts, pauses."""
        planned = {row.number for row in batch.rows}
        full = {row.number for row in batch.rows if row.tokens > self.draft_tokens}
        for call in list(rank.decoding):
            if call.index not in full:
                rank.pause(call, self.decode_alloc_tokens(1))
        for call in rank.leaving:
            call.foreseen = call.index not in planned

    def _prefill(self, rank: NativeRank, batch: Batch, now_ns: int) -> list[Chunk]:
        chunks = []
        for row in batch.rows:
            call = rank.known.get(row.number)
            if call is None:
                continue  # computed once more after its end
            if call.state == WAITING:
                rank.enter(call, row.start, rank.engine.lost_tokens(row.number, row.start), now_ns)
            if call.join_order == 0:
                chunks.append(self._chunk(rank, call, row))
        return chunks

    def _chunk(self, rank: NativeRank, call: Call, row: Row) -> Chunk:
        if call.prefilled != row.start and call.prefill_left > 1:
            raise LawError(
                f"{call!r} has {call.prefilled} tokens computed, its engine goes on at {row.start}. This is "
                "a defect of v4sim: please report the trace, the seed and the engine's version."
            )
        take = min(row.tokens, call.prefill_left)
        rank.extend(call, take)
        return Chunk(call, take, call.prefilled, take == call.prefill_left, row.tokens - take)

    def _note_what_blocks(self, rank: NativeRank, batch: Batch, now_ns: int, visible_ns: int) -> None:
        """Engines do not say why a head waits; their limits and the step do."""
        if not rank.waiting or rank.waiting[0].queued_ns > visible_ns:
            return
        reason = "kv"
        if not batch.preempted:
            if sum(self._charge(rank, row) for row in batch.rows) >= self.max_batched_tokens:
                reason = "budget"
            elif rank.num_running >= self.max_num_seqs:
                reason = "slots"
        rank.block(rank.waiting[0], reason, now_ns)

    def _charge(self, rank: Rank, row: Row) -> int:
        """Of the step's budget."""
        return row.tokens

    # -- what the engine keeps to itself --------------------------------------------------------

    def make_decode_room(self, rank: Rank, needed_tokens: int) -> bool:
        return False

    def quiet_steps(self, rank: Rank) -> int:
        return 1

    def chunks_ahead(self, rank: Rank, chunk: Chunk) -> int:
        return 0

    def decode_alloc_tokens(self, width: int) -> int:
        """Shown as what a call holds; the engine's own number is in the pool."""
        return 1 + 2 * self.draft_tokens

    def after_decode(self, rank: Rank, steps: int) -> None:
        return

    def after_extend(self, rank: Rank) -> None:
        return

    def on_idle(self, rank: Rank) -> None:
        return
