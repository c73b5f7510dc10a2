"""Clients that hang up: when an engine hears of it, and what becomes of their calls.

After SGLang 0.5.23 (`Scheduler.abort_request`, `process_pending_chunked_abort`) and vLLM 0.33
(`EngineCore._process_aborts_queue`, `Scheduler.finish_requests`). Whoever waits leaves the queue.

vLLM hears of it before the results of a step that has ended, and frees the call's memory at once, in the
midst of the step in flight, whose results for it nobody reads. What was hashed stays cached.

SGLang hears of it where it hears of arrivals. A prompt that is cut in chunks stops, and the chunk that was
computed last is not cached. Any other running call goes on until the results of its next step are
processed, and then ends as if its answer did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from v4sim.engine.block import Block
from v4sim.engine.call import FINISHED, WAITING, Call
from v4sim.engine.group import Group
from v4sim.engine.rank import Rank

if TYPE_CHECKING:
    from v4sim.engine.results import Results


class HangUps:
    """Of one replica: who hung up without the engine having heard of it yet, in order."""

    def __init__(self, group: Group, results: Results) -> None:
        self._group = group
        self._results = results
        self.pending: list[tuple[int, Call]] = []

    def note(self, call: Call, now_ns: int) -> None:
        self.pending.append((now_ns, call))

    def hear(self, upto_ns: int, now_ns: int, block: Block | None = None, *, computed: bool = False) -> None:
        """The engine hears of everybody who hung up by `upto_ns`.

        `block`: the step whose results are about to be applied; None where none is in flight. `computed`:
        it is known to have ended, so a running call that SGLang still computes once more is put off.
        """
        later: list[tuple[int, Call]] = []
        for entry in self.pending:
            at_ns, call = entry
            if at_ns > upto_ns or (computed and not self._ends_before_results(call, block)):
                later.append(entry)
            else:
                self._end(call, now_ns, block)
        self.pending = later
        self._group.refresh()

    def _ends_before_results(self, call: Call, block: Block | None) -> bool:
        rank = self._group.ranks[call.rank]
        return call.state == WAITING or self._is_cut(rank, call, block)

    def _is_cut(self, rank: Rank, call: Call, block: Block | None) -> bool:
        """In prefill, and the last chunk is not under way."""
        if call not in rank.prefilling:
            return False
        chunks = block.chunks[rank.index] if block is not None else []
        return not any(chunk.call is call and chunk.last for chunk in chunks)

    def _end(self, call: Call, now_ns: int, block: Block | None) -> None:
        rank, group = self._group.ranks[call.rank], self._group
        rules = group.scheduler
        if call.state == FINISHED and call not in rank.leaving:
            return
        call.hung_up = True
        if call.state == WAITING:
            rank.leave_queue(call, now_ns)
        elif rules.computes_aborted and not self._is_cut(rank, call, block):
            if call.state != FINISHED:
                self._end_with_next_step(rank, call)
            return
        elif rules.computes_aborted:
            rank.hang_up(call, group.lookahead, 0, keep=False)
        elif call.state == FINISHED:
            rank.drop(call, rules.hashed_in_flight(rank, call))
            return  # reported already
        else:
            rank.hang_up(call, group.lookahead, rules.hashed_in_flight(rank, call), keep=True)
        if rank.walked:
            group.settle(rank)
        group.mark_stale()
        self._results.report(rank, call, now_ns)

    def _end_with_next_step(self, rank: Rank, call: Call) -> None:
        if call in rank.prefilling:
            call.output_tokens = call.generated + 1
            return
        steps = rank.clock - call.clock0 + 1
        if steps < call.num_steps:
            call.output_tokens = call.emitted_at(rank.clock + 1)
            call.num_steps = steps
            call.starts = call.starts[:steps]
            rank.finishes.bring_forward(call)
