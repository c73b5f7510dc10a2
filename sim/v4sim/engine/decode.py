"""The decoding sequences of a replica as arrays.

Each call's walk is known when it starts to decode (its lengths are decided by keyed draws), so the
contexts of all its steps lie in one flat store. A batch is a vector of indices into it: looking k
steps ahead is one gather, moving on is adding k. Rows stand in order of rank, then of joining.

A rank's decode clock counts the steps in which that rank decoded; a call that joined at clock c
is at step `clock - c` of its walk, so moving a rank on moves all its calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from v4sim.engine.call import Call
    from v4sim.engine.rank import Rank

Int64s = NDArray[np.int64]
_OFFSETS = np.arange(1 << 10)


def _array(values: list[int]) -> Int64s:
    """`np.array` asks every value for its type first."""
    return np.fromiter(values, np.int64, len(values))


class WalkStore:
    """Contexts of all steps of all running calls; compacts itself when mostly garbage."""

    def __init__(self, capacity: int = 1 << 16) -> None:
        self.flat = np.zeros(capacity, dtype=np.int64)
        self._used = 0
        self._live: dict[int, Call] = {}
        self._live_entries = 0

    def put(self, call: Call, before_tokens: int) -> None:
        """Store the contexts of `call.starts` and the final one; sets `call.offset`.

        The entry before them is what stands for the step before the first, `before_tokens` short of it.
        """
        size = call.num_steps + 2
        if self._used + size > self.flat.size:
            self._make_room(size)
        begin, end = self._used + 1, self._used + size
        flat = self.flat
        np.add(call.starts, call.prompt_tokens - 1, out=flat[begin : end - 1])
        flat[end - 1] = call.prompt_tokens + call.output_tokens - 1
        flat[begin - 1] = flat[begin] - before_tokens
        call.offset = begin
        self._used = end
        self._live[call.index] = call
        self._live_entries += size

    def drop(self, call: Call) -> None:
        del self._live[call.index]
        self._live_entries -= call.num_steps + 2

    def _make_room(self, size: int) -> None:
        capacity = self.flat.size
        while self._live_entries + size > capacity // 2:
            capacity *= 2
        fresh = np.zeros(capacity, dtype=np.int64)
        used = 0
        for call in self._live.values():
            length, begin = call.num_steps + 2, call.offset - 1
            fresh[used : used + length] = self.flat[begin : begin + length]
            call.offset = used + 1
            used += length
        self.flat = fresh
        self._used = used


class DecodeBatch:
    """Who decodes on each rank, and where each stands. Rebuilt when membership changes."""

    def __init__(self, store: WalkStore, num_ranks: int) -> None:
        self.store = store
        self.num_ranks = num_ranks
        self.calls: list[Call] = []
        self.rows = [0] * num_ranks
        self._index: Int64s = np.zeros(0, dtype=np.int64)
        self._begin: Int64s = np.zeros(0, dtype=np.int64)
        self._busy: Int64s = np.zeros(0, dtype=np.int64)
        self._busy_ranks: list[int] = []
        self.emit_ns: Int64s = np.zeros(0, dtype=np.int64)
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
        self._index, self.emit_ns = of_calls[:many], of_calls[many:]
        self._begin, self._busy = of_ranks[:few], of_ranks[few:]

    @property
    def busy_rows(self) -> list[int]:
        """Rows of each rank that has any."""
        return [rows for rows in self.rows if rows]

    def row_slice(self, rank: int) -> slice:
        first = sum(self.rows[:rank])
        return slice(first, first + self.rows[rank])

    def ahead(self, steps: int) -> Int64s:
        """Contexts [rows, steps] before each of the next steps."""
        return self.store.flat.take(self._index[:, None] + _OFFSETS[:steps])

    def before(self) -> Int64s:
        """Contexts [rows] before the step that precedes the next."""
        return self.store.flat.take(self._index - 1)

    def now(self) -> Int64s:
        """Contexts [rows] before the next step."""
        return self.store.flat.take(self._index)

    def per_rank_sum(self, values: Int64s) -> Int64s:
        """Sum over the rows of each rank: [rows, …] → [ranks, …]."""
        return self._spread(values, np.add)

    def per_rank_max(self, values: Int64s) -> Int64s:
        if self._alone:
            return self._spread(values, np.add)
        return self._spread(values, np.maximum)

    def sums(self, values: Int64s) -> list[int]:
        """`per_rank_sum` of one number a row, as plain numbers."""
        return self._listed(values, np.add)

    def tops(self, values: Int64s) -> list[int]:
        return self._listed(values, np.maximum)

    def _listed(self, values: Int64s, over: np.ufunc) -> list[int]:
        found = [0] * self.num_ranks
        if self.calls:
            reduced = values if self._alone else over.reduceat(values, self._begin)
            values_of: list[int] = reduced.tolist()
            for index, rank in enumerate(self._busy_ranks):
                found[rank] = values_of[index]
        return found

    def _spread(self, values: Int64s, over: np.ufunc) -> Int64s:
        busy = self._busy.size
        if busy == self.num_ranks:
            reduced: Int64s = values if self._alone else over.reduceat(values, self._begin)
            return reduced
        out = np.zeros((self.num_ranks, *values.shape[1:]), dtype=np.int64)
        if busy:
            out[self._busy] = values if self._alone else over.reduceat(values, self._begin)
        return out

    def advance(self, steps: int) -> None:
        self._index += steps

    def advance_rank(self, rank: int, steps: int) -> None:
        self._index[self.row_slice(rank)] += steps
