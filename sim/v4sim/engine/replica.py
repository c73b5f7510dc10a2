"""A replica: ranks that step in lockstep. It sequences; group, ranks, rules and costs know the rest.

One cycle: decide (a batch per rank) → price it → wait → apply the results → decide again. Where
nobody prefills, many decode steps run as one block, and an arrival cuts it at the step boundary
where a step-by-step engine would have noticed it. `stepwise=True` takes every step alone through the
scalar cost path; both give the same integers.

Late results. SGLang's overlap and vLLM's async scheduling choose a batch before the results of the
running one are known: a call that ends in step i is still in the batch of step i+1 (`leaving`), its
memory is free for step i+2, and an arrival during step i is first considered for step i+2.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final

import simpy

from v4sim.clock import Turn, call_at, decide, step_end
from v4sim.cost.base import StepCost
from v4sim.engine.base import Scheduler
from v4sim.engine.block import Block
from v4sim.engine.call import FINISHED, Call
from v4sim.engine.chunk import Chunk
from v4sim.engine.delayer import PrefillDelayer
from v4sim.engine.group import Group
from v4sim.engine.hang_ups import HangUps
from v4sim.engine.late import spent
from v4sim.engine.listeners import Listeners
from v4sim.engine.pricing import Pricer
from v4sim.engine.probe import Probe
from v4sim.engine.rank import Rank
from v4sim.engine.results import Results
from v4sim.engine.room import DecodeRoom
from v4sim.speculation import SpecPolicy
from v4sim.walks import Walks

_NO_CHUNKS: Final[list[Chunk]] = []


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
        walks: Walks | None,
        spec_blocks_mixed: bool,
        delayer: PrefillDelayer | None = None,
        on_done: Callable[[Call, int], None],
        probes: Sequence[Probe] = (),
        stepwise: bool = False,
        turn: Turn | None = None,
    ) -> None:
        self.env = env
        self.number = number
        self.scheduler = scheduler
        self.listeners = Listeners(probes)
        self.group = Group(ranks, scheduler, spec, walks)
        self.ranks = self.group.ranks
        self._spec_blocks_mixed = (
            spec_blocks_mixed and not scheduler.mixes and spec.draft_tokens > 0 and len(self.ranks) > 1
        )
        self._delayer = delayer
        self._denied = False
        # A delayer counts passes, so with one every step is decided by itself.
        self._pricer = Pricer(env, self.group, cost, stepwise=stepwise, prefill_runs=delayer is None)
        self._results = Results(self, self.group, on_done)
        self._room = DecodeRoom(self.group, self._results)
        self._hang_ups = HangUps(self.group, self._results)
        self._block: Block | None = None
        self._turn = turn or Turn()  # shared by all replicas of a run
        self._token = 0
        self._deciding = False
        self._last_start_ns = 0
        self._steps = self._awake_since = 0

    # -- arrivals -------------------------------------------------------------------------------

    def submit(self, call: Call, rank_index: int) -> None:
        """A call reaches the queue of a rank now."""
        rank = self.ranks[rank_index]
        call.replica, call.rank = self.number, rank_index
        now = int(self.env.now)
        waited_for = bool(rank.waiting)
        rank.enqueue(call, now)
        if rank.owner.kv.capacity < rank.pages(call.prompt_tokens + 1) + rank.overhead_tokens:
            rank.waiting.pop()
            call.outcome, call.state = "rejected", FINISHED
            self._results.report(rank, call, now)
        elif self._block is None:
            self._decide_at(now)
        elif not waited_for or call.priority or self.scheduler.reorders:
            self._cut(self._block, now)

    def hang_up(self, call: Call) -> None:
        """The client of `call`, which was submitted here, hangs up now; the engine hears of it in time."""
        now = int(self.env.now)
        self._hang_ups.note(call, now)
        block = self._block
        if block is None:
            self._hang_ups.hear(now, now)
            self._decide_at(now)
        elif block.steps > 1:
            self._stand_alone(block, now)

    def _stand_alone(self, block: Block, now: int) -> None:
        """The step of `block` that is under way ends it; alone, where somebody leaves before its results."""
        step = bisect_left(block.ends_ns, now, 0, block.steps)
        self._token += 1
        if step == 0 or (self.scheduler.late_results and now > block.start_ns):
            block.steps, block.token = step + 1, self._token
            self._end_at(block)
            return
        start, chunks = int(block.ends_ns[step - 1]), block.chunks
        block.steps = step
        self._apply(block, start)
        if block.run_parts_ns is None:
            self._room.make(self.ranks, start)
        else:
            chunks = [[chunk.after(step) for chunk in planned] for planned in chunks]
            for rank in self.ranks:
                for chunk in chunks[rank.index]:
                    rank.try_extend(chunk.call, chunk.new_tokens)
                    rank.allocate(chunk.new_tokens, 1)
        self.group.refresh()
        self._block = self._pricer.alone(start, chunks, block.decodes, self._token)
        self._end_at(self._block)

    def _cut(self, block: Block, now_ns: int) -> None:
        """End the running block at the boundary where the scheduler would see an arrival at `now_ns`."""
        if block.steps == 1:
            return
        # A step that ends now is a boundary where a call of now is seen, unless that was decided already.
        missed = not self.scheduler.late_results and self._turn.has_passed(now_ns, self.number)
        find = bisect_right if missed else bisect_left
        boundary = find(block.ends_ns, now_ns, 0, block.steps)
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
            call_at(self.env, at_ns, decide(self.number), self._decide)

    def _end_at(self, block: Block) -> None:
        token = block.token
        end_ns = int(block.ends_ns[block.steps - 1])
        call_at(self.env, end_ns, step_end(self.number), lambda: self._end(token))

    def _decide(self) -> None:
        self._deciding = False
        now = int(self.env.now)
        self._turn.take(now, self.number)
        visible = self._last_start_ns
        if self._block is None or not self.scheduler.late_results:
            visible = now
        if self._hang_ups.pending and self._block is None:
            self._hang_ups.hear(now, now)
        chunks, decodes, prefills = self._plan(now, visible)
        published = self._publish()
        if not prefills and True not in decodes:
            # Nothing to run: the loop spins, processes what is left, sees what has arrived, and a delayer
            # gives in.
            visible = now
            self._spin(now)
            spins = 2 if self.scheduler.late_results and self._block is not None else 1
            while spins and not prefills and True not in decodes:
                spins -= 1
                if spins == 0:  # the results of the last step are processed, and there is still nothing
                    for rank in self.ranks:
                        self.scheduler.on_idle(rank)
                if not any(rank.waiting or rank.prefilling or rank.held_back for rank in self.ranks):
                    continue
                chunks, decodes, prefills = self._plan(now, visible)
                while self._denied and not prefills and True not in decodes:
                    chunks, decodes, prefills = self._plan(now, visible)
        if not prefills and True not in decodes:
            self._block = None
            self._awake_since = self._steps
            self._give_up_on_heads(now)
            return
        self.group.refresh(True in decodes)
        self._token += 1
        # The delayer counts passes, so while anybody waits it must be asked after every step; and what was
        # published just now may help the next pass.
        one_step = prefills or (
            (published or self._delayer is not None) and any(rank.waiting for rank in self.ranks)
        )
        if self._hang_ups.pending:
            self._block = self._pricer.alone(now, chunks, decodes, self._token)
        else:
            self._block = self._pricer.price(now, visible, chunks, decodes, one_step, self._token)
        self._end_at(self._block)
        if self._block.steps > 1 and self._block.first_parts_ns is not None:
            # Calls leave after the first step; the block goes on without them.
            first_end = int(self._block.ends_ns[0])
            free = self._results.free_leaving
            call_at(self.env, first_end, step_end(self.number), lambda: free(first_end))

    def _spin(self, now: int) -> None:
        """The results that were left are processed."""
        hang_ups = self._hang_ups
        if hang_ups.pending and not self.scheduler.computes_aborted:
            hang_ups.hear(now, now)
        self._results.free_leaving(now)
        if hang_ups.pending:
            hang_ups.hear(now, now)
        for rank in self.ranks:
            rank.settle()

    def _publish(self) -> bool:
        """Process what the last step's prefills left behind; with overlap that is after the choice."""
        fresh = [rank for rank in self.ranks if rank.fresh]
        for rank in fresh:
            rank.publish_fresh()
        return bool(fresh)

    def _end(self, token: int) -> None:
        block = self._block
        if block is None or token != block.token:
            return  # the block was cut: its earlier end has been scheduled
        now = int(self.env.now)
        if self._hang_ups.pending:
            self._apply_with_hang_ups(block, now)
        else:
            self._apply(block, now)
        if self.env.peek() > now and not self._deciding:
            self._decide()  # nothing else happens at this instant
        else:
            self._decide_at(now)

    def _apply(self, block: Block, now: int) -> None:
        """`block` has ended, or so many steps of it as it has left."""
        self._results.apply(block, now)
        steps = block.steps
        self._steps += steps
        self._last_start_ns = block.start_ns if steps == 1 else int(block.ends_ns[steps - 2])

    def _apply_with_hang_ups(self, block: Block, now: int) -> None:
        """What the engine hears of before these results, with late results when the last step began."""
        steps = block.steps
        block.forget_rows(self.group.batch.rows)
        if self.scheduler.late_results:
            self._hang_ups.hear(block.start_ns if steps == 1 else int(block.ends_ns[steps - 2]), now, block)
            self._apply(block, now)
        else:
            self._hang_ups.hear(now, now, block, computed=self.scheduler.computes_aborted)
            self._apply(block, now)
            self._hang_ups.hear(now, now)

    # -- planning -------------------------------------------------------------------------------

    def _plan(self, now: int, visible: int) -> tuple[list[list[Chunk]], list[bool], bool]:
        """(chunks per rank, which ranks decode, whether any rank prefills) of the next step."""
        scheduler, ranks = self.scheduler, self.ranks
        for rank in ranks:
            rank.choice_ns = now
            if rank.last_decode_ns != now:
                rank.settle()
            rank.step, rank.awake_since = self._steps, self._awake_since
        if scheduler.mixes and scheduler.decodes_first:
            self._room.make(ranks, now)
        chunks = []
        prefills = False
        self._denied = self._delayer is not None and self._delayer.denies(ranks, visible)
        plans_always = scheduler.plans_always
        for rank in ranks:
            planned = _NO_CHUNKS
            if rank.prefilling or ((rank.waiting or plans_always) and not self._denied):
                planned = scheduler.plan(rank, now, visible)
                if rank.admitted:
                    self._results.tell_admitted(rank, now)
                if rank.walked:
                    self.group.settle(rank)
                if planned:
                    prefills = True
                    if self._delayer is not None:
                        self._delayer.saw(len(planned))
            chunks.append(planned)
        if scheduler.mixes:
            if not scheduler.decodes_first:
                self._room.make(ranks, now)
            decodes = [not rank.held_back and bool(rank.decoding or spent(rank)) for rank in ranks]
            return chunks, decodes, prefills
        if prefills and self._spec_blocks_mixed:
            return chunks, [False] * len(ranks), True
        self._room.make([rank for rank in ranks if not chunks[rank.index]], now)
        decodes = [
            not chunks[rank.index] and not rank.held_back and bool(rank.decoding or spent(rank))
            for rank in ranks
        ]
        return chunks, decodes, prefills

    def _give_up_on_heads(self, now: int) -> None:
        """Nothing runs and nothing may enter: whoever waits at the head can never be served."""
        for rank in self.ranks:
            if rank.prefilling:
                rank.abort(rank.prefilling[0], self.group.lookahead)
                self._results.report(rank, rank.aborted.pop(), now)
                self._decide_at(now)
            elif rank.waiting and rank.waiting[0].queued_ns <= now:
                self._results.report(rank, rank.drop_head("rejected", now), now)
                self._decide_at(now)
