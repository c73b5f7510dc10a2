"""The decoding sequences as flat vectors: the form for compiled code.

Loops over `librt.vecs`, whose elements compiled code reads and writes as plain machine words. What
observers get are arrays over the same memory, read-only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from librt.strings import read_i64_le
from librt.vecs import append, vec
from mypy_extensions import i64
from numpy.typing import NDArray

from v4sim.cost.base import PARTS
from v4sim.cost.run import DecodeRun
from v4sim.cost.step import ProfileCost
from v4sim.engine.bursts import Bursts
from v4sim.engine.decode.base import DecodeBatch, PageRule, Priced, WalkStore

if TYPE_CHECKING:
    from v4sim.cost.base import StepCost
    from v4sim.engine.call import Call
    from v4sim.engine.rank import Rank

Int64s = NDArray[np.int64]
_NUM: Final = len(PARTS)


def _zeros(size: int) -> vec[i64]:
    return vec[i64]([0] * size)


def _array(values: vec[i64]) -> Int64s:
    """The same memory as an array."""
    return np.frombuffer(memoryview(values), np.int64)


class LoopStore(WalkStore):
    def allocate(self, capacity: int) -> None:
        self.flat: vec[i64] = _zeros(capacity)

    def write(self, call: Call, before_tokens: int) -> None:
        flat = self.flat
        starts = call.starts.tobytes()
        at: i64 = call.offset
        shift: i64 = call.prompt_tokens - 1
        steps: i64 = call.num_steps
        step: i64 = 0
        while step < steps:
            flat[at + step] = read_i64_le(starts, step * 8) + shift
            step += 1
        output: i64 = call.output_tokens
        flat[at + steps] = output + shift
        before: i64 = before_tokens
        flat[at - 1] = flat[at] - before

    def move(self, moves: list[tuple[int, int]]) -> None:
        old = self.flat
        fresh = _zeros(self.capacity)
        used: i64 = 0
        for begin, length in moves:
            first: i64 = begin
            size: i64 = length
            k: i64 = 0
            while k < size:
                fresh[used + k] = old[first + k]
                k += 1
            used += size
        self.flat = fresh

    def contexts(self, call: Call, steps: int) -> Int64s:
        return _array(self.flat)[call.offset : call.offset + steps]

    def sizes(self, call: Call, steps: int, width: int) -> list[int]:
        flat = self.flat
        found = _zeros(width)
        at: i64 = call.offset
        end: i64 = at + steps
        while at < end:
            found[flat[at + 1] - flat[at] - 1] += 1
            at += 1
        return list(found)


class LoopBatch(DecodeBatch):
    """`DecodeBatch` whose rows are walked one by one."""

    def __init__(self, num_ranks: int, pages: PageRule) -> None:
        self._store = LoopStore()
        super().__init__(self._store, num_ranks, pages)
        self._index: vec[i64] = _zeros(0)  # where each row stands in the store
        self._emit_ns: vec[i64] = _zeros(0)
        self._first: vec[i64] = _zeros(num_ranks + 1)  # first row of each rank, and the end
        self._run: DecodeRun | None = None

    def rebuild(self, ranks: Sequence[Rank]) -> None:
        calls: list[Call] = []
        rows: list[int] = []
        index = vec[i64]()
        emit = vec[i64]()
        first = vec[i64]()
        for rank in ranks:
            members = rank.decoding
            rows.append(len(members))
            first = append(first, len(calls))
            if members:
                calls += members
                clock, last = rank.clock, rank.last_decode_ns
                for call in members:
                    index = append(index, call.offset + clock - call.clock0)
                    emit = append(emit, call.emit_ns if call.clock0 == clock else last)
        self.calls = calls
        self.rows = rows
        self._index, self._emit_ns = index, emit
        self._first = append(first, len(calls))

    # -- the next step ----------------------------------------------------------------------------

    def loads(self) -> tuple[list[int], list[int]]:
        sums = [0] * self.num_ranks
        tops = [0] * self.num_ranks
        flat, index, first = self._store.flat, self._index, self._first
        row: i64 = 0
        for rank in range(self.num_ranks):
            total: i64 = 0
            top: i64 = 0
            end = first[rank + 1]
            while row < end:
                context = flat[index[row]]
                total += context
                if context > top:
                    top = context
                row += 1
            sums[rank], tops[rank] = total, top
        return sums, tops

    def needs(self, lags: list[int]) -> list[int]:
        return [
            self._held(rank, -1, self.pages.in_flight_tokens or 0) if lags[rank] else self._held(rank, 0, 0)
            for rank in range(self.num_ranks)
        ]

    def _held(self, rank: int, step: i64, in_flight_tokens: i64) -> int:
        """Tokens of the pages of a rank, counted from the contexts before this step and so many tokens."""
        flat, index = self._store.flat, self._index
        page: i64 = self.pages.page_tokens
        more: i64 = self.pages.lookahead_tokens
        more += page - 1 + in_flight_tokens
        pages: i64 = 0
        row, end = self._first[rank], self._first[rank + 1]
        while row < end:
            pages += (flat[index[row] + step] + more) // page
            row += 1
        return pages * page

    # -- the next steps -----------------------------------------------------------------------------

    def held(self, rank: int, steps: int) -> list[int]:
        rule = self.pages
        return [self._held(rank, step - rule.lag, rule.in_flight_tokens or 0) for step in range(steps)]

    def held_last(self, steps: int) -> list[int]:
        rule = self.pages
        last = steps - 1 - rule.lag
        return [self._held(rank, last, rule.in_flight_tokens or 0) for rank in range(self.num_ranks)]

    def price(self, cost: StepCost, now_ns: int, steps: int, width: int, first: list[int] | None) -> Priced:
        if not isinstance(cost, ProfileCost):
            return self._price_at_once(cost, now_ns, steps, width, first)
        run = self._run
        if run is None or run.cost is not cost:
            run = self._run = DecodeRun(cost)
        run.start(self.rows, width)
        # Parts step by step, then how long each step lasts, then when it ends.
        out = _zeros(steps * (_NUM + 2))
        total_steps: i64 = steps
        lasts_at: i64 = total_steps * _NUM
        ends_at: i64 = lasts_at + total_steps
        end: i64 = now_ns
        flat, index, rank_of = self._store.flat, self._index, self._first
        ranks: i64 = self.num_ranks
        step: i64 = 0
        lasted: i64 = 0
        if first is not None:
            for part, ns in enumerate(first):
                out[part] = ns
                lasted += out[part]
            end += lasted
            out[lasts_at], out[ends_at] = lasted, end
            step = 1
        while step < total_steps:
            run.begin()
            row: i64 = 0
            rank: i64 = 0
            while rank < ranks:
                total: i64 = 0
                top: i64 = 0
                row_end = rank_of[rank + 1]
                while row < row_end:
                    context = flat[index[row] + step]
                    total += context
                    if context > top:
                        top = context
                    row += 1
                if top:  # somebody decodes there
                    run.rank(rank, total, top)
                rank += 1
            lasted = run.put(out, step * _NUM)
            end += lasted
            out[lasts_at + step], out[ends_at + step] = lasted, end
            step += 1
        run.end()
        found = _array(out)
        parts, rest = found[: steps * _NUM], found[steps * _NUM :]
        return Priced(parts.reshape(steps, _NUM).T, rest[:steps], rest[steps:])

    def _price_at_once(
        self, cost: StepCost, now_ns: int, steps: int, width: int, first: list[int] | None
    ) -> Priced:
        """`price` by a model that knows arrays only."""
        begin = 0 if first is None else 1
        shape = steps - begin, self.num_ranks
        sums, tops = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        flat = _array(self._store.flat)
        for rank in range(self.num_ranks):
            if self.rows[rank]:
                index = _array(self._index)[slice(*self.row_range(rank))]
                ahead = flat[index + np.arange(begin, steps)[:, None]]
                sums[:, rank], tops[:, rank] = ahead.sum(axis=1), ahead.max(axis=1)
        parts = cost.decode(self.rows, sums, tops, width)
        if first is not None:
            parts = np.column_stack([np.array(first, dtype=np.int64), parts])
        durations: Int64s = parts.sum(axis=0)
        return Priced(parts, durations, durations.cumsum() + now_ns)

    def bursts(
        self, active: list[int], first_end_ns: int, durations_ns: Int64s, steps: int, width: int
    ) -> Bursts:
        flat, index, rank_of, emitted = self._store.flat, self._index, self._first, self._emit_ns
        rows = sum([self.rows[rank] for rank in active])
        # Gaps, then tokens of the first bursts, then per size the number of later bursts in each step.
        out = _zeros(rows if width == 1 else 2 * rows + (steps - 1) * width)
        end: i64 = first_end_ns
        tokens_at: i64 = rows
        sizes_at: i64 = 2 * rows
        later: i64 = steps - 1
        at: i64 = 0
        for rank in active:
            row, row_end = rank_of[rank], rank_of[rank + 1]
            while row < row_end:
                out[at] = end - emitted[row]
                if width > 1:
                    place = index[row] + 1
                    context = flat[place]
                    out[tokens_at + at] = context - flat[place - 1]
                    step: i64 = 0
                    while step < later:
                        place += 1
                        following = flat[place]
                        out[sizes_at + (following - context - 1) * later + step] += 1
                        context = following
                        step += 1
                at += 1
                row += 1
        found = _array(out)
        if width == 1:
            return Bursts(found, durations_ns)
        of_size = list(found[2 * rows :].reshape(width, steps - 1))
        return Bursts(found[:rows], durations_ns, found[rows : 2 * rows], of_size)

    # -- moving on ----------------------------------------------------------------------------------

    def advance(self, rank: int, steps: int, now_ns: int) -> None:
        index, emitted = self._index, self._emit_ns
        by: i64 = steps
        now: i64 = now_ns
        row, end = self._first[rank], self._first[rank + 1]
        while row < end:
            index[row] += by
            emitted[row] = now
            row += 1
