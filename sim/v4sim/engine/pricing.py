"""From a plan to a block: how long the next step, or the next run of decode steps, takes.

One step is priced by the scalar path of the cost model. A run of pure decode steps with fixed
membership is one evaluation (steps × ranks). A run ends at the
first finish, where a rank's pages run short, and where a queued call might get in.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import simpy

from v4sim.cost.base import StepCost
from v4sim.cost.load import RankLoad
from v4sim.engine.block import Block
from v4sim.engine.chunk import Chunk
from v4sim.engine.group import Group
from v4sim.engine.late import spent

MAX_BLOCK_STEPS: Final = 512
# A short look ahead costs as much as a longer one.
_SHORTEST_BLOCK: Final = 8
_IDLE: Final = RankLoad(0, 0, 0, ())


class Pricer:
    """Prices for one replica. Reads the group, changes nothing."""

    def __init__(
        self, env: simpy.Environment, group: Group, cost: StepCost, *, stepwise: bool, prefill_runs: bool
    ) -> None:
        self._env = env
        self._group = group
        self._cost = cost
        self._stepwise = stepwise
        self._prefill_runs = prefill_runs
        self._last_step_ns = 10_000_000

    def price(
        self,
        now: int,
        visible_ns: int,
        chunks: list[list[Chunk]],
        decodes: list[bool],
        one_step: bool,
        token: int,
    ) -> Block:
        """The block that starts now. `decodes` says which ranks decode, `chunks` what they prefill."""
        if self._stepwise:
            return self.alone(now, chunks, decodes, token)
        if one_step:
            steps = self._chunks_ahead(visible_ns, chunks, decodes)
            if steps:
                return self._prefill_run(now, steps + 1, chunks, decodes, token)
        else:
            steps = self._steps_ahead(now, visible_ns)
            if steps > 1:
                block = self._run(now, steps, chunks, decodes, token)
                if block is not None:
                    return block
        return self.alone(now, chunks, decodes, token)

    def _run(
        self, now: int, steps: int, chunks: list[list[Chunk]], decodes: list[bool], token: int
    ) -> Block | None:
        group, batch = self._group, self._group.batch
        steps = self._steps_that_fit(steps)
        if steps == 1:
            return None
        first = rows = new_tokens = None
        if any(rank.leaving for rank in group.ranks):
            loads, rows, new_tokens = self._loads(chunks, decodes, *batch.loads())
            first = self._cost.step(loads, group.width, "decode")
        run = batch.price(self._cost, now, steps, group.width, first)
        self._last_step_ns = max(1, int(run.durations_ns[-1]))
        return Block(
            now,
            run.ends_ns,
            steps,
            chunks,
            decodes,
            token,
            first_parts_ns=first,
            rows=rows,
            new_tokens=new_tokens,
            parts_ns=run.parts_ns,
            durations_ns=run.durations_ns,
        )

    def _steps_ahead(self, now: int, visible_ns: int) -> int:
        """How many decode steps nothing can disturb but an arrival."""
        steps = MAX_BLOCK_STEPS
        scheduler = self._group.scheduler
        plans_always = scheduler.plans_always
        any_rows = False
        for rank in self._group.ranks:
            if rank.last_arrival_ns > visible_ns or rank.prefilling or (rank.leaving and rank.waiting):
                return 1  # a new call will be seen, a parked one may go on, or freed memory admit one
            if rank.decoding:
                any_rows = True
                steps = min(steps, rank.steps_to_next_finish())
            if rank.waiting or plans_always:
                steps = min(steps, scheduler.quiet_steps(rank))
        if not any_rows:
            return 1
        if steps > _SHORTEST_BLOCK:
            # Work beyond the next known event would mostly be cut off again.
            horizon = (self._env.peek() - now) / self._last_step_ns + 3
            if horizon < steps:
                steps = max(_SHORTEST_BLOCK, int(horizon))
        return steps

    def _chunks_ahead(self, visible_ns: int, chunks: list[list[Chunk]], decodes: list[bool]) -> int:
        """How many more steps would repeat this one, chunk after chunk of the same long prompts."""
        if True in decodes or not self._prefill_runs:
            return 0
        group = self._group
        ahead = MAX_BLOCK_STEPS
        for rank in group.ranks:
            planned = chunks[rank.index]
            if rank.last_arrival_ns > visible_ns or rank.leaving:
                return 0
            if planned:
                if len(planned) > 1 or planned[0].last:
                    return 0
                ahead = min(ahead, group.scheduler.chunks_ahead(rank, planned[0]))
        return ahead if ahead < MAX_BLOCK_STEPS else 0

    def _prefill_run(
        self, now: int, steps: int, chunks: list[list[Chunk]], decodes: list[bool], token: int
    ) -> Block:
        loads, rows, new_tokens = self._loads(chunks, decodes, [], [])
        parts: list[list[int]] = []
        ends: list[int] = []
        end, horizon = now, self._env.peek()
        for step in range(steps):
            if step:
                loads = [
                    RankLoad(0, 0, 0, tuple([(new, past + new) for new, past in load.prefill]))
                    if load.prefill
                    else load
                    for load in loads
                ]
            priced = self._cost.step(loads, self._group.width, "prefill")
            parts.append(priced)
            end += sum(priced)
            ends.append(end)
            if step and ends[-2] > horizon:
                break  # what comes after the next event would probably be cut off again
        return Block(
            now,
            ends,
            len(ends),
            chunks,
            decodes,
            token,
            kind="prefill",
            rows=rows,
            new_tokens=new_tokens,
            run_parts_ns=parts,
        )

    def _steps_that_fit(self, steps: int) -> int:
        """Cut a run before the step for which some rank's pages run out."""
        group, batch = self._group, self._group.batch
        page = group.page_tokens
        most = (steps * group.width // page + 1) * page  # what one sequence can grow by
        for rank in group.ranks:
            if batch.rows[rank.index] * most > rank.owner.kv_available:
                break
        else:
            return steps
        for rank in group.ranks:
            room = rank.owner.kv_available + rank.decode_alloc
            steps = max(1, bisect_right(batch.held(rank.index, steps), room))
        return steps

    def alone(self, now: int, chunks: list[list[Chunk]], decodes: list[bool], token: int) -> Block:
        """One step."""
        any_decode = True in decodes
        sums: list[int] = []
        tops: list[int] = []
        if any_decode:
            sums, tops = self._group.batch.loads()
        loads, rows, new_tokens = self._loads(chunks, decodes, sums, tops)
        kind = "decode" if not any(chunks) else "mixed" if any_decode else "prefill"
        parts = self._cost.step(loads, self._group.width, kind)
        duration = sum(parts)
        if kind == "decode":
            self._last_step_ns = max(1, duration)
        return Block(
            now,
            [now + duration],
            1,
            chunks,
            decodes,
            token,
            kind=kind,
            first_parts_ns=parts,
            rows=rows,
            new_tokens=new_tokens,
        )

    def _loads(
        self, chunks: list[list[Chunk]], decodes: list[bool], sums: list[int], tops: list[int]
    ) -> tuple[list[RankLoad], list[int], list[int]]:
        """Per rank: its load, its decode rows and the prompt tokens it computes. Calls that leave are rows.

        `sums` and `tops` of contexts are read of ranks that decode.
        """
        ranks, batch = self._group.ranks, self._group.batch
        loads = [_IDLE] * len(ranks)
        all_rows, new_tokens = [0] * len(ranks), [0] * len(ranks)
        for index, rank in enumerate(ranks):
            planned = chunks[index]
            rows = context_sum = context_max = 0
            if decodes[index]:
                rows, context_sum, context_max = batch.rows[index], sums[index], tops[index]
                for call in spent(rank):
                    last = call.prompt_tokens + call.output_tokens
                    rows, context_sum, context_max = rows + 1, context_sum + last, max(context_max, last)
            elif not planned:
                continue
            prefill: tuple[tuple[int, int], ...] = ()
            if planned:
                prefill = tuple([(chunk.new_tokens + chunk.padding, chunk.past_tokens) for chunk in planned])
                for chunk in planned:
                    new_tokens[index] += chunk.new_tokens
            loads[index] = RankLoad(rows, context_sum, context_max, prefill)
            all_rows[index] = rows
        return loads, all_rows, new_tokens
