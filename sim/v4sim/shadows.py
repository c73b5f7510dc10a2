"""The tree of content under several cache keys: one tree for each key, made from the trace's own links.

Where a call extends one of another key, it repeats all of that call's content under its own key. It then
hangs off the nearest content above that has its key. Where several calls of a key branch off foreign
content, they would miss each other there; so the foreign content gets a *shadow* of their key, which was
never sent as a call, and they meet at it. The same holds for the common prefix of a group.

Cost: a climb for each call whose parent has another key; calls without such a parent cost nothing.
Units: tokens. Links are row indices; shadows follow the rows.
"""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from v4sim.identity import Int64s, Keyed
from v4sim.metrics.calls import dense_codes

if TYPE_CHECKING:
    from v4traces import TraceTable

NONE = -1


class KeyedTree:
    """Content by number: calls as the trace has them, then shadows.

    Climbs go one by one, so columns are arrays of machine integers: quick to index, and small.
    """

    def __init__(self, table: TraceTable, key: Int64s) -> None:
        self._rows = table.n
        self._key, self._above = _numbers(key), _numbers(table.parent)
        self._link = _numbers(table.shared_tokens + table.shared_output_tokens)  # with what is above
        self._trace_group, self._prompt = _numbers(table.group), _numbers(table.prompt_tokens)
        self._parent, self._shared = self._above[:], self._link[:]
        pair, _ = dense_codes(table.group, key)
        _, first = np.unique(pair, return_index=True)
        self._pair_of = {
            (self._trace_group[row], self._key[row]): number for number, row in enumerate(first.tolist())
        }
        self._group = _numbers(np.where(table.group >= 0, pair, NONE))
        self._group_tokens = _numbers(table.group_tokens)
        self._shadows: dict[tuple[int, int], int] = {}
        self._own_bound = np.where(table.parent >= 0, table.shared_tokens, 0)
        self._grouped = np.flatnonzero((table.parent < 0) & (table.group >= 0))
        self._foreign = np.flatnonzero((table.parent >= 0) & (key != key[np.maximum(table.parent, 0)]))
        companions = Counter(key[self._foreign].tolist())
        for row in self._foreign.tolist():
            if companions[self._key[row]] > 1:
                self._hang(row)
            else:
                self._hang_alone(row)
        self._splice()

    def _hang_alone(self, row: int) -> None:
        """No other call of the key climbs: straight to what has the key, or to the group."""
        key, shared, above = self._key[row], self._link[row], self._above[row]
        while self._key[above] != key:
            higher = self._above[above]
            if higher < 0:
                self._root(row, self._trace_group[above], min(self._group_tokens[above], shared))
                return
            shared, above = min(shared, self._link[above]), higher
        self._parent[row], self._shared[row] = above, shared

    def _hang(self, row: int) -> None:
        """Climb to what has the key, or to where a call of the key has climbed before, leaving shadows."""
        key, child, above = self._key[row], row, self._above[row]
        while above >= 0:
            known = above if self._key[above] == key else self._shadows.get((above, key))
            if known is not None:
                self._parent[child] = known
                return
            self._parent[child] = child = self._shadow(above, key)
            above = self._above[above]

    def _shadow(self, row: int, key: int) -> int:
        number = self._shadows[row, key] = len(self._parent)
        self._key.append(key)
        self._parent.append(NONE)
        self._shared.append(self._link[row])
        self._group.append(NONE)
        self._group_tokens.append(0)
        if self._above[row] < 0:
            self._root(number, self._trace_group[row], self._group_tokens[row])
        return number

    def _root(self, node: int, group: int, group_tokens: int) -> None:
        """`node` extends nothing but, maybe, the prefix of a group of the trace."""
        self._parent[node] = NONE
        if group < 0:
            self._group[node], self._group_tokens[node] = NONE, 0
            return
        self._group[node] = self._pair_of.setdefault((group, self._key[node]), len(self._pair_of))
        self._group_tokens[node] = group_tokens

    def _splice(self) -> None:
        """Do away with shadows that one content alone extends: nobody else could find it there."""
        children = Counter(parent for parent in self._parent if parent >= self._rows)
        kept = [shadow for shadow, number in children.items() if number > 1]
        for node in chain(self._foreign.tolist(), kept):
            parent = self._parent[node]
            while parent >= self._rows and children[parent] == 1:
                if self._parent[parent] < 0:
                    self._group[node] = self._group[parent]
                    self._group_tokens[node] = min(self._group_tokens[parent], self._shared[node])
                else:
                    self._shared[node] = min(self._shared[node], self._shared[parent])
                parent = self._parent[parent]
            self._parent[node] = parent

    def content(self) -> Keyed:
        size = len(self._parent)
        parent = np.array(self._parent, dtype=np.int64)
        group = np.where(parent < 0, np.array(self._group, dtype=np.int32), NONE).astype(np.int32)
        return Keyed(
            n=size,
            parent=parent,
            shared_tokens=np.where(parent >= 0, np.array(self._shared, dtype=np.int64), 0),
            shared_output_tokens=np.zeros(size, dtype=np.int64),
            group=group,
            group_tokens=np.where(group >= 0, np.array(self._group_tokens, dtype=np.int64), 0),
            group_names=[str(number) for number in range(len(self._pair_of))],
        )

    def bound_tokens(self) -> Int64s:
        """Per call: the longest prefix that an earlier call of its key had in its prompt.

        Calls that extend one of their own key have it from there, as in the trace itself. The others climb
        through shadows and groups, which hold what earlier climbers brought.
        """
        bound = self._own_bound.copy()
        climbers = np.union1d(self._foreign, self._grouped)
        shadowed: dict[int, int] = {}
        grouped: dict[int, int] = {}
        for row in climbers.tolist():
            best, node, tokens = 0, row, self._prompt[row]
            while True:
                above = self._parent[node]
                if above < 0:
                    group, tokens = self._group[node], min(tokens, self._group_tokens[node])
                    if group >= 0:
                        best = max(best, min(tokens, grouped.get(group, 0)))
                        grouped[group] = max(grouped.get(group, 0), tokens)
                    break
                node, tokens = above, min(tokens, self._shared[node])
                if node < self._rows:
                    best = max(best, min(tokens, self._prompt[node]))
                    break
                best = max(best, min(tokens, shadowed.get(node, 0)))
                shadowed[node] = max(shadowed.get(node, 0), tokens)
            bound[row] = best
        return bound


def _numbers(column: NDArray[Any]) -> array[int]:
    # A trace has fewer rows, and its calls have fewer tokens, than 2^31.
    return array("i", column.astype(np.intc).tobytes())
