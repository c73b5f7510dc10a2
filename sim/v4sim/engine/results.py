"""What a block that ended leads to: tokens, first tokens, finished calls, freed memory.

Applies a block to the ranks and tells the probes. The order within one boundary is fixed: calls that
left one step ago are freed, decodes advance, calls finish in the order they joined, then prefill
chunks count, rank by rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from v4sim.engine.ahead import take_on_the_way
from v4sim.engine.block import Block
from v4sim.engine.bursts import Bursts
from v4sim.engine.call import FINISHED, Call
from v4sim.engine.group import Group
from v4sim.engine.rank import Rank
from v4sim.errors import LawError

if TYPE_CHECKING:
    from mypy_extensions import i64

    from v4sim.engine.replica import Replica

_NOTHING: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
_ONE_TOKEN: NDArray[np.int64] = np.ones(1, dtype=np.int64)


def _newest_first(call: Call) -> tuple[int, int]:
    """Where SGLang mixes, a prefill stands before the calls that decode beside it, and stays there."""
    return -call.clock0, call.join_order


def _shares(durations_ns: list[int], width: int, weight: int) -> int:
    """Time attributed to one row that decodes in steps of so long, each shared by `weight` tokens."""
    total: i64 = 0
    tokens: i64 = width
    among: i64 = weight
    for duration_ns in durations_ns:
        lasted: i64 = duration_ns
        total += lasted * tokens // among
    return total


class Results:
    """Applies ended blocks of one replica. `on_done` hears of every call that is over."""

    def __init__(self, replica: Replica, group: Group, on_done: Callable[[Call, int], None]) -> None:
        self._replica = replica
        self._group = group
        self._on_done = on_done

    def apply(self, block: Block, now: int) -> None:
        """Everything that the end of `block` (now) brings about."""
        group = self._group
        self.free_leaving(now)
        if block.run_parts_ns is not None:
            self._prefill_run(block)
            return
        decodes = block.decodes
        active = [rank for rank in group.ranks if decodes[rank.index] and rank.decoding]
        rows = sum([len(rank.decoding) for rank in active])
        tokens = sum([chunk.new_tokens for planned in block.chunks for chunk in planned])
        weight = tokens + group.width * rows
        if block.first_parts_ns is not None:
            duration = int(block.ends_ns[0]) - block.start_ns
            self._tell_step(block, block.start_ns, duration, block.first_parts_ns)
        if rows:
            self._decoded(block, now, weight, active)
        if tokens:
            self._prefilled(block, now, weight)
        for rank in group.ranks:
            if decodes[rank.index] and rank not in active and not block.chunks[rank.index]:
                group.scheduler.after_decode(rank, 1)  # calls that had ended, and nobody else

    def _tell_step(self, block: Block, start_ns: int, duration_ns: int, parts_ns: list[int]) -> None:
        for tell in self._replica.listeners.step:
            tell(self._replica, start_ns, duration_ns, parts_ns, block.kind, block.rows, block.new_tokens)

    def free_leaving(self, now: int) -> None:
        """Calls that finished one step ago have left the batch; their memory is free."""
        for rank in self._group.ranks:
            if rank.leaving:
                leaving, rank.leaving = rank.leaving, []
                for call in leaving:
                    self._release(rank, call, now)
            if rank.dropped:
                for call in rank.dropped:
                    self._tell_released(rank, call, now)
                rank.dropped.clear()

    # -- decode ---------------------------------------------------------------------------------

    def _decoded(self, block: Block, now: int, weight: int, active: list[Rank]) -> None:
        group, batch, steps = self._group, self._group.batch, block.steps
        of_ranks = [rank.index for rank in active]
        if block.parts_ns is None:
            first_end, duration = now, now - block.start_ns
            self._tell_tokens([now], batch.bursts(of_ranks, now, _NOTHING, 1, group.width))
            share = duration * group.width // weight
        else:
            assert block.durations_ns is not None
            assert isinstance(block.ends_ns, np.ndarray)
            durations, ends = block.durations_ns[:steps], block.ends_ns[:steps]
            first_end = int(ends[0])
            self._tell_tokens(ends, batch.bursts(of_ranks, first_end, durations[1:], steps, group.width))
            share = _shares(durations.tolist(), group.width, weight)
        for rank in active:
            rank.clock += steps
            rank.last_decode_ns = now
            rank.share_ns += share
            if not block.chunks[rank.index]:
                group.scheduler.after_decode(rank, steps)
        if block.parts_ns is not None:
            alone = 0 if block.first_parts_ns is None else 1
            if steps > alone:
                begin = first_end if alone else block.start_ns
                if alone:
                    ends, durations = ends[1:], durations[1:]
                parts = block.parts_ns[:, alone:steps]
                for tell in self._replica.listeners.decode_block:
                    tell(self._replica, begin, ends, durations, parts, batch.rows)
            self._hold_pages(steps, active)
        for rank in active:
            batch.advance(rank.index, steps, now)
        for rank in active:
            if rank.steps_to_next_finish() <= 0:
                done = rank.take_finished()
                if group.scheduler.mixes and rank.evicts_ahead:
                    done.sort(key=_newest_first)
                for call in done:
                    rank.leave_decode(call, group.lookahead)
                    call.verify_steps += rank.clock - call.clock0
                    rank.walked.append((call, rank.clock))
                    self._finish(rank, call, now)
                group.settle(rank)

    def _tell_tokens(self, ends: Sequence[int] | NDArray[np.int64], bursts: Bursts) -> None:
        for tell in self._replica.listeners.tokens:
            tell(ends, bursts)

    def _hold_pages(self, steps: int, active: list[Rank]) -> None:
        """After a run of steps every row holds the pages that its last step needed."""
        group, batch = self._group, self._group.batch
        held_last = batch.held_last(steps)
        for rank in active:
            held = held_last[rank.index]
            grown = held - rank.decode_alloc
            if grown + len(rank.decoding) * group.page_tokens > rank.owner.kv.free:
                # Something must be evicted on the way: take the growth as single steps would.
                take_on_the_way(rank, batch.held(rank.index, steps), drafts=group.lookahead > 1)
            elif grown:
                rank.set_decode_alloc(held)

    # -- prefill --------------------------------------------------------------------------------

    def _prefilled(self, block: Block, now: int, weight: int) -> None:
        group = self._group
        duration = now - block.start_ns
        for rank in group.ranks:
            group.scheduler.after_extend(rank)
            for chunk in block.chunks[rank.index]:
                call = chunk.call
                if call.state == FINISHED or call not in rank.prefilling:
                    continue  # preempted after it was planned
                call.share_ns += duration * chunk.new_tokens // weight
                late = chunk.last and group.scheduler.publishes_late
                ends = chunk.last and call.generated + 1 >= call.output_tokens
                rank.chunk_done(call, chunk.new_tokens, late=late, ends=ends)
                if chunk.last:
                    self._first_token(rank, call, now)

    def _prefill_run(self, block: Block) -> None:
        """Several steps that computed chunk after chunk of the same prompts, none of them the last."""
        assert block.run_parts_ns is not None
        ranks = self._group.ranks
        planned = [(rank, chunks[0]) for rank in ranks if (chunks := block.chunks[rank.index])]
        running = [(rank, chunk) for rank, chunk in planned if chunk.call in rank.prefilling]
        weight = sum([chunk.new_tokens for _, chunk in running])
        start_ns = block.start_ns
        for step in range(block.steps):
            duration_ns = int(block.ends_ns[step]) - start_ns
            self._tell_step(block, start_ns, duration_ns, block.run_parts_ns[step])
            start_ns += duration_ns
            for rank, chunk in running:
                call, new = chunk.call, chunk.new_tokens
                if step and not rank.try_extend(call, new):
                    raise LawError(f"{call!r} has no room for a chunk that was promised to fit")
                if step:
                    rank.allocate(new, 1)
                call.share_ns += duration_ns * new // weight
                rank.chunk_done(call, new, late=False)

    def _first_token(self, rank: Rank, call: Call, now: int) -> None:
        """Prefill is complete: its last position yields one token."""
        if call.first_token_ns < 0:
            call.first_token_ns = now
        else:
            # It was retracted: its client has waited since the token before.
            gap = np.array([now - call.emit_ns], dtype=np.int64)
            width = self._group.width
            tokens, of_size = (None, None) if width == 1 else (_ONE_TOKEN, [_NOTHING] * width)
            self._tell_tokens([now], Bursts(gap, _NOTHING, tokens, of_size))
        call.generated += 1
        if call.generated >= call.output_tokens or call.hung_up:
            call.output_tokens = call.generated
            rank.prefilling.remove(call)
            self._finish(rank, call, now)
        else:
            self._group.begin_decode(rank, call, now)

    # -- ends -----------------------------------------------------------------------------------

    def _finish(self, rank: Rank, call: Call, now: int) -> None:
        """The last token is out; the engine learns of it now or one step later."""
        call.last_token_ns = now
        call.outcome = "aborted" if call.hung_up else "completed"
        call.state = FINISHED
        self._group.mark_stale()
        self.report(rank, call, now)
        scheduler = self._group.scheduler
        if scheduler.late_results:
            call.foreseen = scheduler.foresees_limits and self._ends_at_limit(call)
            rank.leaving.append(call)
            rank.epoch += 1
        else:
            self._release(rank, call, now)

    def _ends_at_limit(self, call: Call) -> bool:
        """Its last step was certain to reach the limit: one token was left, whatever drafts were accepted."""
        left = call.output_tokens - int(call.starts[-1]) if call.num_steps else 1
        return left == 1 and call.output_tokens == call.max_new_tokens

    def _release(self, rank: Rank, call: Call, now: int) -> None:
        scheduler = self._group.scheduler
        content = call.prompt_tokens + call.output_tokens - 1
        if call.overshot and not call.foreseen and scheduler.keeps_last_token:
            content += 1
        unseen = content - call.prompt_tokens - self._known_at_last_choice(rank, call)
        rank.release(call, content, keep=scheduler.keeps_output, unseen_tokens=unseen)
        self._tell_released(rank, call, now)

    def _known_at_last_choice(self, rank: Rank, call: Call) -> int:
        """Output tokens that the engine knew of when it last dropped what had left this call's window.

        SGLang does so where it chooses a decode step, but for the first one after a prefill.
        """
        chosen = call.num_steps + (call.overshot and not call.foreseen)
        if chosen < 2:
            return call.generated - 1 - rank.keyless_tokens if call.num_steps else 0
        late = self._group.scheduler.late_results and call.clock0 + chosen - 1 not in rank.settled
        before = chosen - 2 if late else chosen - 1
        return int(call.starts[before]) if before < call.num_steps else call.output_tokens

    def _tell_released(self, rank: Rank, call: Call, now: int) -> None:
        for tell in self._replica.listeners.release:
            tell(rank, call, now)

    def tell_admitted(self, rank: Rank, now: int) -> None:
        for call in rank.admitted:
            for tell in self._replica.listeners.admit:
                tell(rank, call, now)
        rank.admitted.clear()

    def report_aborted(self, rank: Rank, now: int) -> None:
        """Calls that were given up for want of memory."""
        for call in rank.aborted:
            self.report(rank, call, now)
        rank.aborted.clear()

    def report(self, rank: Rank, call: Call, now: int) -> None:
        """Tell observers and the world that a call is over, whatever its outcome."""
        for tell in self._replica.listeners.done:
            tell(rank, call, now)
        self._on_done(call, now)
