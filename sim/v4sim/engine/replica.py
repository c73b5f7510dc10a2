"""A replica: ranks that step in lockstep. It sequences; ranks, schedulers and costs know the rest.

One cycle: decide (a batch per rank) → price it → wait → apply the results → decide again. Where
nobody prefills, many decode steps are priced at once (a *block*): it ends at the first finish, at
the step where memory runs short, or where a queued call may get in, and an arrival cuts it at the
step boundary where a step-by-step engine would have noticed it. `stepwise=True` takes every step
alone through the scalar cost path; both give the same integers.

Late results. SGLang's overlap and vLLM's async scheduling choose a batch before the results of the
running one are known: a call that ends in step i is still in the batch of step i+1 (`leaving`), its
memory is free for step i+2, and an arrival during step i is first considered for step i+2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from v4sim.clock import DECIDE, STEP_END, call_at
from v4sim.cost.base import RankLoad, StepCost
from v4sim.engine.base import Chunk, Scheduler
from v4sim.engine.call import FINISHED, Call
from v4sim.engine.decode import DecodeBatch, WalkStore
from v4sim.engine.rank import Rank
from v4sim.speculation import AcceptanceModel, SpecPolicy, walk

if TYPE_CHECKING:
    import simpy

    from v4sim.engine.probe import Probe

MAX_BLOCK_STEPS = 512
_IDLE = RankLoad(0, 0, 0, ())


@dataclass(slots=True)
class _Block:
    """What runs now: `ends_ns` are the step boundaries; only decode blocks have more than one."""

    start_ns: int
    ends_ns: list[int] | NDArray[np.int64]
    steps: int
    chunks: list[list[Chunk]]
    decodes: list[bool]
    parts_ns: NDArray[np.int64] | None
    contexts: NDArray[np.int64] | None
    token: int


class Replica:
    """One EP group. `ranks` share the clock; `scheduler` is applied to each on its own."""

    def __init__(
        self,
        env: simpy.Environment,
        number: int,
        ranks: Sequence[Rank],
        scheduler: Scheduler,
        cost: StepCost,
        *,
        spec: SpecPolicy,
        acceptance: AcceptanceModel | None,
        spec_blocks_mixed: bool,
        on_done: Callable[[Call, int], None],
        probes: Sequence[Probe] = (),
        stepwise: bool = False,
    ) -> None:
        self.env = env
        self.number = number
        self.ranks = list(ranks)
        self.scheduler = scheduler
        self.cost = cost
        self.spec = spec
        self.acceptance = acceptance
        self.spec_blocks_mixed = spec_blocks_mixed and spec.draft_tokens > 0 and len(self.ranks) > 1
        self.on_done = on_done
        self.probes = list(probes)
        self.stepwise = stepwise
        self.store = WalkStore()
        self.batch = DecodeBatch(self.store, len(self.ranks))
        self.width = spec.draft_tokens + 1
        self.lookahead = scheduler.decode_alloc_tokens(self.width)
        self._stale = True
        self._block: _Block | None = None
        self._token = 0
        self._deciding = False
        self._last_start_ns = 0
        self._visible_ns = 0
        self._last_step_ns = 10_000_000

    # -- arrivals -------------------------------------------------------------------------------

    def submit(self, call: Call, rank_index: int) -> None:
        """A call reaches the queue of a rank now."""
        rank = self.ranks[rank_index]
        call.replica, call.rank = self.number, rank_index
        now = int(self.env.now)
        waited_for = bool(rank.waiting)
        rank.enqueue(call, now)
        if rank.owner.kv.capacity < rank.pages(call.prompt_tokens + 1):
            rank.waiting.pop()
            call.outcome, call.state = "rejected", FINISHED
            self._report(rank, call, now)
        elif self._block is None:
            self._decide_at(now)
        elif not waited_for or call.priority or self.scheduler.reorders:
            self._cut(now)

    def _cut(self, now_ns: int) -> None:
        """End the running block at the boundary where the scheduler would see an arrival at `now_ns`."""
        block = self._block
        assert block is not None
        if block.steps == 1:
            return
        boundary = int(np.searchsorted(block.ends_ns[: block.steps], now_ns, side="left"))
        if self.scheduler.late_results and now_ns > block.start_ns:
            boundary += 1
        if boundary + 1 < block.steps:
            self._token += 1
            block.steps, block.token = boundary + 1, self._token
            self._end_at(block)

    # -- the cycle ------------------------------------------------------------------------------

    def _decide_at(self, at_ns: int) -> None:
        if not self._deciding:
            self._deciding = True
            call_at(self.env, at_ns, DECIDE, self._decide)

    def _end_at(self, block: _Block) -> None:
        token = block.token
        call_at(self.env, int(block.ends_ns[block.steps - 1]), STEP_END, lambda: self._end(token))

    def _decide(self) -> None:
        self._deciding = False
        now = int(self.env.now)
        was_idle = self._block is None
        visible = now if was_idle or not self.scheduler.late_results else self._last_start_ns
        chunks = self._plan(now, visible)
        decodes = self._who_decodes(chunks)
        if not any(decodes) and not any(chunks):
            if visible < now and any(rank.waiting for rank in self.ranks):
                # Nothing to run: the loop spins and sees what has arrived meanwhile.
                chunks = self._plan(now, now)
                decodes = self._who_decodes(chunks)
            if not any(decodes) and not any(chunks):
                self._block = None
                self._give_up_on_heads(now)
                return
        block = self._start(now, chunks, decodes)
        self._block = block
        self._end_at(block)

    def _plan(self, now: int, visible: int) -> list[list[Chunk]]:
        scheduler = self.scheduler
        self._visible_ns = visible
        if scheduler.mixes:
            self._make_room(self.ranks, now)
        chunks = []
        for rank in self.ranks:
            planned = scheduler.plan(rank, now, visible)
            if planned:
                for probe in self.probes:
                    for chunk in planned:
                        probe.on_admit(rank, chunk.call, now)
            if rank.walked:
                self._account_walks(rank)
            chunks.append(planned)
        if not scheduler.mixes and not (self.spec_blocks_mixed and any(chunks)):
            self._make_room([r for r, planned in zip(self.ranks, chunks, strict=True) if not planned], now)
        return chunks

    def _make_room(self, ranks: Sequence[Rank], now: int) -> None:
        """Pages for the next decode step of these ranks, retracting where need be."""
        self._refresh()
        page = self.ranks[0].page_tokens
        pages = (self.batch.now() + (self.lookahead + page - 1)) // page
        needs = self.batch.per_rank_sum(pages).tolist()
        for rank in ranks:
            needed = needs[rank.index] * page
            while needed > rank.decode_alloc and self.scheduler.make_decode_room(rank, needed, now):
                self._account_walks(rank)
                for call in rank.aborted:
                    self._report(rank, call, now)
                rank.aborted.clear()
                needed = sum(
                    rank.pages(call.context_at(rank.clock) + self.lookahead) for call in rank.decoding
                )
            if needed > rank.decode_alloc:
                rank.set_decode_alloc(needed)

    def _who_decodes(self, chunks: list[list[Chunk]]) -> list[bool]:
        """Which ranks decode in the next step, given who prefills."""
        prefilling = any(chunks)
        decodes = []
        for rank, planned in zip(self.ranks, chunks, strict=True):
            ready = bool(rank.decoding or rank.leaving)
            if self.scheduler.mixes:
                decodes.append(ready)
            elif planned or (prefilling and self.spec_blocks_mixed):
                decodes.append(False)
            else:
                decodes.append(ready)
        return decodes

    def _give_up_on_heads(self, now: int) -> None:
        """Nothing runs and nothing may enter: whoever waits at the head can never be served."""
        for rank in self.ranks:
            if rank.prefilling:
                rank.abort(rank.prefilling[0], self.lookahead)
                self._report(rank, rank.aborted.pop(), now)
                self._decide_at(now)
            elif rank.waiting and rank.waiting[0].queued_ns <= now:
                self._report(rank, rank.drop_head("rejected", now), now)
                self._decide_at(now)

    # -- pricing --------------------------------------------------------------------------------

    def _start(self, now: int, chunks: list[list[Chunk]], decodes: list[bool]) -> _Block:
        self._refresh()
        self._last_start_ns = now
        self._token += 1
        steps = 1
        if not self.stepwise and not any(chunks) and not any(rank.leaving for rank in self.ranks):
            steps = self._block_steps(now)
        if steps > 1:
            contexts = self.batch.ahead(steps + 1)
            sums = self.batch.per_rank_sum(contexts[:, :steps])
            steps = self._steps_that_fit(contexts, steps)
        if steps > 1:
            parts = self.cost.decode(
                self.batch.rows,
                np.ascontiguousarray(sums[:, :steps].T),
                np.ascontiguousarray(self.batch.per_rank_max(contexts[:, :steps]).T),
                self.width,
            )
            ends = np.cumsum(parts.sum(axis=0)) + now
            return _Block(now, ends, steps, chunks, decodes, parts, contexts, self._token)
        return self._single(now, chunks, decodes)

    def _single(self, now: int, chunks: list[list[Chunk]], decodes: list[bool]) -> _Block:
        loads = []
        work = []
        batch = self.batch
        sums = tops = [0] * len(self.ranks)
        if any(decodes):
            contexts = batch.now()
            sums = batch.per_rank_sum(contexts).tolist()
            tops = batch.per_rank_max(contexts).tolist()
        for rank, planned, decode in zip(self.ranks, chunks, decodes, strict=True):
            if not decode and not planned:
                loads.append(_IDLE)
                work.append((0, 0))
                continue
            rows = context_sum = context_max = 0
            if decode:
                rows, context_sum, context_max = batch.rows[rank.index], sums[rank.index], tops[rank.index]
                for call in rank.leaving:
                    last = call.prompt_tokens + call.output_tokens
                    rows, context_sum, context_max = rows + 1, context_sum + last, max(context_max, last)
            prefill = tuple((chunk.new_tokens, chunk.past_tokens) for chunk in planned)
            loads.append(RankLoad(rows, context_sum, context_max, prefill))
            work.append((rows, sum(new for new, _ in prefill)))
        kind = "decode" if not any(chunks) else "mixed" if any(decodes) else "prefill"
        parts = self.cost.step(loads, self.width, kind)
        duration = sum(parts)
        for probe in self.probes:
            probe.on_step(self, now, duration, parts, kind, work)
        return _Block(now, [now + duration], 1, chunks, decodes, None, None, self._token)

    def _block_steps(self, now: int) -> int:
        """How many decode steps may be priced at once: until a finish, or a possible admission."""
        steps = MAX_BLOCK_STEPS
        for rank in self.ranks:
            if rank.decoding:
                steps = min(steps, rank.steps_to_next_finish())
            if rank.last_arrival_ns > self._visible_ns:
                return 1  # it will be seen at the next boundary
            steps = min(steps, self.scheduler.quiet_steps(rank))
        if steps > 4:
            # Work beyond the next known event would mostly be cut off again.
            horizon = (self.env.peek() - now) / self._last_step_ns + 3
            if horizon < steps:
                steps = max(4, int(horizon))
        return steps

    def _steps_that_fit(self, contexts: NDArray[np.int64], steps: int) -> int:
        """Cut a block before the step for which some rank's pages run out."""
        batch = self.batch
        page = self.ranks[0].page_tokens
        last = batch.per_rank_sum((contexts[:, steps - 1] + (self.lookahead + page - 1)) // page) * page
        for rank in self.ranks:
            room = rank.owner.kv_available + rank.decode_alloc
            if last[rank.index] > room:
                rows = contexts[batch.row_slice(rank.index), :steps]
                needed = ((rows + (self.lookahead + page - 1)) // page).sum(axis=0) * page
                steps = max(1, min(steps, int(np.searchsorted(needed, room, side="right"))))
        return steps

    # -- results --------------------------------------------------------------------------------

    def _end(self, token: int) -> None:
        block = self._block
        if block is None or token != block.token:
            return
        now = int(self.env.now)
        self._free_leaving(now)
        rows = sum(
            len(rank.decoding) for rank, decodes in zip(self.ranks, block.decodes, strict=True) if decodes
        )
        tokens = sum(chunk.new_tokens for planned in block.chunks for chunk in planned)
        weight = tokens + self.width * rows
        if rows:
            self._apply_decode(block, now, weight)
        if tokens:
            self._apply_chunks(block, now, weight)
        steps = block.steps
        self._last_start_ns = block.start_ns if steps == 1 else int(block.ends_ns[steps - 2])
        self._last_step_ns = max(1, now - self._last_start_ns)
        self._decide_at(now)

    def _free_leaving(self, now: int) -> None:
        """Calls that finished one step ago have now left the batch."""
        for rank in self.ranks:
            if rank.leaving:
                leaving, rank.leaving = rank.leaving, []
                for call in leaving:
                    self._release(rank, call, now)

    def _apply_decode(self, block: _Block, now: int, weight: int) -> None:
        batch, steps = self.batch, block.steps
        active = [
            rank
            for rank, decodes in zip(self.ranks, block.decodes, strict=True)
            if decodes and rank.decoding
        ]
        ends = np.asarray(block.ends_ns[:steps], dtype=np.int64)
        durations = np.diff(ends, prepend=block.start_ns)
        self._observe_tokens(block, active, durations)
        share = int((durations * self.width // weight).sum())
        for rank in active:
            rank.clock += steps
            rank.last_decode_ns = now
            rank.share_ns += share
            self.scheduler.after_decode(rank, steps)
        if block.parts_ns is not None:
            self._apply_block(block, active, ends)
        for rank in active:
            rows = batch.row_slice(rank.index)
            batch.emit_ns[rows] = now
            if block.parts_ns is None:
                batch.advance_rank(rank.index, steps)
            if rank.steps_to_next_finish() <= 0:
                for call in rank.take_finished():
                    rank.leave_decode(call, self.lookahead)
                    call.verify_steps += rank.clock - call.clock0
                    rank.walked.append((call, rank.clock))
                    self._finish(rank, call, now)
                self._account_walks(rank)

    def _apply_block(self, block: _Block, active: list[Rank], ends: NDArray[np.int64]) -> None:
        """A priced block: move all rows on, and hold the pages that its last step needed."""
        assert block.parts_ns is not None
        assert block.contexts is not None
        batch, steps = self.batch, block.steps
        for probe in self.probes:
            probe.on_decode_block(self, block.start_ns, ends, block.parts_ns[:, :steps], batch.rows)
        batch.advance(steps)
        page = self.ranks[0].page_tokens
        pages = (block.contexts[:, steps - 1] + (self.lookahead + page - 1)) // page
        held = (batch.per_rank_sum(pages) * page).tolist()
        for rank in active:
            grown = held[rank.index] - rank.decode_alloc
            if grown > rank.owner.kv.free:
                # Something must be evicted on the way: take the growth as single steps would.
                self._grow_stepwise(rank, block.contexts[batch.row_slice(rank.index), :steps])
            elif grown:
                rank.set_decode_alloc(held[rank.index])

    def _grow_stepwise(self, rank: Rank, contexts: NDArray[np.int64]) -> None:
        page = rank.page_tokens
        totals = ((contexts + (self.lookahead + page - 1)) // page).sum(axis=0) * page
        for total in np.unique(totals).tolist():
            if total > rank.decode_alloc:
                rank.owner.make_kv_room(total - rank.decode_alloc)
                rank.set_decode_alloc(total)

    def _observe_tokens(self, block: _Block, active: list[Rank], durations: NDArray[np.int64]) -> None:
        batch, steps = self.batch, block.steps
        contexts = block.contexts if block.contexts is not None else batch.ahead(2)
        gaps = np.empty((contexts.shape[0], steps), dtype=np.int64)
        gaps[:] = durations
        gaps[:, 0] += block.start_ns - batch.emit_ns
        tokens = np.diff(contexts[:, : steps + 1], axis=1)
        if sum(len(rank.decoding) for rank in active) < len(batch.calls):
            keep = np.concatenate([np.arange(s.start, s.stop) for s in (batch.row_slice(r.index) for r in active)])
            gaps, tokens = gaps[keep], tokens[keep]
        for probe in self.probes:
            probe.on_tokens(gaps.ravel(), tokens.ravel())

    def _apply_chunks(self, block: _Block, now: int, weight: int) -> None:
        duration = now - block.start_ns
        for rank in self.ranks:
            self.scheduler.after_extend(rank)
        for rank, planned in zip(self.ranks, block.chunks, strict=True):
            for chunk in planned:
                call = chunk.call
                if call.state == FINISHED or call not in rank.prefilling:
                    continue
                call.share_ns += duration * chunk.new_tokens // weight
                rank.chunk_done(call, chunk.new_tokens)
                if chunk.last:
                    self._first_token(rank, call, now)

    def _first_token(self, rank: Rank, call: Call, now: int) -> None:
        """Prefill is complete: its last position yields one token."""
        if call.first_token_ns < 0:
            call.first_token_ns = now
        call.generated += 1
        if call.generated >= call.output_tokens:
            rank.prefilling.remove(call)
            call.kv_peak_tokens = max(call.kv_peak_tokens, call.kv_end)
            self._finish(rank, call, now)
            return
        self._walk(call, call.generated)
        self.store.put(call)
        rank.join_decode(call, now)
        self._stale = True

    def _walk(self, call: Call, first: int) -> None:
        accepted = None
        if self.acceptance is not None and self.width > 1:
            accepted = self.acceptance.accepted(
                call.uid, call.output_tokens, call.phases, drafts=self.width - 1
            )
        call.starts = walk(accepted, first, call.output_tokens)
        call.num_steps = len(call.starts)

    def _account_walks(self, rank: Rank) -> None:
        """Tally the verify steps of calls that left decode, and forget their walks."""
        self._stale = True
        for call, clock in rank.walked:
            executed = clock - call.clock0
            if self.acceptance is not None and executed > 0:
                emitted = np.array([*call.starts, call.output_tokens], dtype=np.int64)[: executed + 1]
                self.acceptance.record(emitted[:-1], emitted[1:], call.phases)
            self.store.drop(call)
        rank.walked.clear()

    def _finish(self, rank: Rank, call: Call, now: int) -> None:
        """The last token is out; the engine learns of it now or one step later."""
        call.last_token_ns = now
        call.outcome = "completed"
        call.state = FINISHED
        self._stale = True
        self._report(rank, call, now)
        if self.scheduler.late_results:
            rank.leaving.append(call)
            rank.epoch += 1
        else:
            self._release(rank, call, now)

    def _release(self, rank: Rank, call: Call, now: int) -> None:
        rank.release(call, call.prompt_tokens + call.output_tokens - 1, keep=self.scheduler.keeps_output)
        for probe in self.probes:
            probe.on_release(rank, call, now)

    def _report(self, rank: Rank, call: Call, now: int) -> None:
        for probe in self.probes:
            probe.on_done(rank, call, now)
        self.on_done(call, now)

    def _refresh(self) -> None:
        """Bring the arrays up to date with who decodes, and the verify width with how many."""
        if not self._stale:
            return
        self._stale = False
        width = self.spec.width(max(len(rank.decoding) for rank in self.ranks))
        if width != self.width:
            self.width = width
            for rank in self.ranks:
                for call in rank.decoding:
                    executed = rank.clock - call.clock0
                    past = call.starts[:executed]
                    self.store.drop(call)
                    self._walk(call, call.emitted_at(rank.clock))
                    call.starts = past + call.starts
                    call.num_steps = len(call.starts)
                    self.store.put(call)
                    rank.rewalk(call)
        self.batch.rebuild(self.ranks)
