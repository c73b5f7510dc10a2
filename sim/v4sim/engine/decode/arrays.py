"""The decoding sequences as numpy arrays: the form for the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from v4sim.engine.bursts import Bursts
from v4sim.engine.decode.base import DecodeBatch, PageRule, Priced, WalkStore

if TYPE_CHECKING:
    from v4sim.cost.base import StepCost
    from v4sim.engine.call import Call
    from v4sim.engine.rank import Rank

Int64s = NDArray[np.int64]
_OFFSETS = np.arange(1 << 10)
_NOBODY: Int64s = np.zeros(0, dtype=np.int64)


def _array(values: list[int]) -> Int64s:
    """`np.array` asks every value for its type first."""
    return np.fromiter(values, np.int64, len(values))


class ArrayStore(WalkStore):
    def allocate(self, capacity: int) -> None:
        self.flat: Int64s = np.zeros(capacity, dtype=np.int64)

    def write(self, call: Call, before_tokens: int) -> None:
        flat, begin = self.flat, call.offset
        end = begin + call.num_steps
        np.add(call.starts, call.prompt_tokens - 1, out=flat[begin:end])
        flat[end] = call.prompt_tokens + call.output_tokens - 1
        flat[begin - 1] = flat[begin] - before_tokens

    def move(self, moves: list[tuple[int, int]]) -> None:
        old, used = self.flat, 0
        self.allocate(self.capacity)
        for begin, length in moves:
            self.flat[used : used + length] = old[begin : begin + length]
            used += length

    def contexts(self, call: Call, steps: int) -> Int64s:
        return self.flat[call.offset : call.offset + steps]

    def sizes(self, call: Call, steps: int, width: int) -> list[int]:
        contexts = self.contexts(call, steps + 1)
        found: list[int] = np.bincount(contexts[1:] - contexts[:-1] - 1, minlength=width).tolist()
        return found


class ArrayBatch(DecodeBatch):
    """`DecodeBatch` whose rows are numbers of an array: few numpy calls, each over all of them."""

    def __init__(self, num_ranks: int, pages: PageRule) -> None:
        self._store = ArrayStore()
        super().__init__(self._store, num_ranks, pages)
        self._index: Int64s = _NOBODY
        self._begin: Int64s = _NOBODY
        self._busy: Int64s = _NOBODY
        self._busy_ranks: list[int] = []
        self._emit_ns: Int64s = _NOBODY
        self._alone = True  # no rank decodes more than one sequence

    def rebuild(self, ranks: Sequence[Rank]) -> None:
        calls: list[Call] = []
        index: list[int] = []
        emit: list[int] = []
        begin: list[int] = []
        busy: list[int] = []
        rows: list[int] = []
        for rank in ranks:
            members = rank.decoding
            rows.append(len(members))
            if members:
                begin.append(len(calls))
                busy.append(rank.index)
                calls += members
                clock, last = rank.clock, rank.last_decode_ns
                for call in members:
                    index.append(call.offset + clock - call.clock0)
                    emit.append(call.emit_ns if call.clock0 == clock else last)
        self.calls = calls
        self.rows = rows
        self._alone = len(busy) == len(calls)
        self._busy_ranks = busy
        many, few = len(calls), len(busy)  # two lists at a time: a conversion costs more than its numbers
        of_calls, of_ranks = _array(index + emit), _array(begin + busy)
        self._index, self._emit_ns = of_calls[:many], of_calls[many:]
        self._begin, self._busy = of_ranks[:few], of_ranks[few:]

    # -- the next step ----------------------------------------------------------------------------

    def loads(self) -> tuple[list[int], list[int]]:
        now = self._now()
        return self._listed(now, np.add), self._listed(now, np.maximum)

    def needs(self, lags: list[int]) -> list[int]:
        if not any(lags):
            counted = self._now()
        elif all(lags):
            counted = self._before() + (self.pages.in_flight_tokens or 0)
        else:  # nothing in flight on some ranks, and no more than that is known
            counted = np.where(np.repeat(lags, self.rows), self._before(), self._now())
        return self._listed(self._pages_of(counted), np.add)

    # -- the next steps -----------------------------------------------------------------------------

    def held(self, rank: int, steps: int) -> list[int]:
        first, end = self.row_range(rank)
        totals: list[int] = self._pages_of(self._counted(self._index[first:end], steps)).sum(axis=0).tolist()
        return totals

    def held_last(self, steps: int) -> list[int]:
        rule = self.pages
        last = self._store.flat.take(self._index + (steps - 1 - rule.lag))
        return self._listed(self._pages_of(last + (rule.in_flight_tokens or 0)), np.add)

    def price(self, cost: StepCost, now_ns: int, steps: int, width: int, first: list[int] | None) -> Priced:
        ahead = self._ahead(self._index, steps)
        if first is not None:
            ahead = ahead[:, 1:]
        sums = self._spread(ahead, np.add).T
        tops = sums if self._alone else self._spread(ahead, np.maximum).T  # [steps, ranks]
        parts = cost.decode(self.rows, sums, tops, width)
        if first is not None:
            rest, parts = parts, np.empty((len(first), steps), dtype=np.int64)
            parts[:, 0] = _array(first)
            parts[:, 1:] = rest
        durations: Int64s = np.add.reduce(parts, axis=0)
        ends = np.add.accumulate(durations)
        ends += now_ns
        return Priced(parts, durations, ends)

    def bursts(
        self, active: list[int], first_end_ns: int, durations_ns: Int64s, steps: int, width: int
    ) -> Bursts:
        index, emitted = self._index, self._emit_ns
        if sum([self.rows[rank] for rank in active]) < len(self.calls):
            keep = np.concatenate([np.arange(*self.row_range(rank)) for rank in active])
            index, emitted = index[keep], emitted[keep]
        gaps = first_end_ns - emitted
        if width == 1:
            return Bursts(gaps, durations_ns)
        ahead = self._ahead(index, steps + 1)
        tokens = ahead[:, 1:] - ahead[:, :-1]
        later = tokens[:, 1:]
        of_size = [np.add.reduce(later == size, axis=0) for size in range(1, width)]
        rest: Int64s = np.full(steps - 1, index.size)
        for counted in of_size:
            rest -= counted
        return Bursts(gaps, durations_ns, tokens[:, 0], [*of_size, rest])

    # -- moving on ----------------------------------------------------------------------------------

    def advance(self, rank: int, steps: int, now_ns: int) -> None:
        first, end = self.row_range(rank)
        self._index[first:end] += steps
        self._emit_ns[first:end] = now_ns

    # -- details ------------------------------------------------------------------------------------

    def _ahead(self, index: Int64s, steps: int) -> Int64s:
        """Contexts [rows, steps] from these places on, one a step."""
        return self._store.flat.take(index[:, None] + _OFFSETS[:steps])

    def _now(self) -> Int64s:
        return self._store.flat.take(self._index)

    def _before(self) -> Int64s:
        """Contexts [rows] before the step that precedes the next."""
        return self._store.flat.take(self._index - 1)

    def _counted(self, index: Int64s, steps: int) -> Int64s:
        """Contexts [rows, steps] from which the pages of each of the next steps are counted."""
        rule = self.pages
        return self._ahead(index - rule.lag, steps) + (rule.in_flight_tokens or 0)

    def _pages_of(self, contexts: Int64s) -> Int64s:
        """Tokens of the pages that a step holds whose pages are counted from these contexts."""
        page = self.pages.page_tokens
        pages: Int64s = (contexts + (self.pages.lookahead_tokens + page - 1)) // page
        pages *= page
        return pages

    def _listed(self, values: Int64s, over: np.ufunc) -> list[int]:
        """One number a row, reduced over the rows of each rank."""
        found = [0] * self.num_ranks
        if self.calls:
            reduced = values if self._alone else over.reduceat(values, self._begin)
            values_of: list[int] = reduced.tolist()
            for index, rank in enumerate(self._busy_ranks):
                found[rank] = values_of[index]
        return found

    def _spread(self, values: Int64s, over: np.ufunc) -> Int64s:
        """Reduced over the rows of each rank: [rows, steps] → [ranks, steps]."""
        busy = self._busy.size
        if busy == self.num_ranks:
            reduced: Int64s = values if self._alone else over.reduceat(values, self._begin)
            return reduced
        out = np.zeros((self.num_ranks, *values.shape[1:]), dtype=np.int64)
        if busy:
            out[self._busy] = values if self._alone else over.reduceat(values, self._begin)
        return out
