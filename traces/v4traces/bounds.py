"""What a cache that never forgets could serve, within one task and over the whole trace.

The global bound is `TraceTable.bound_tokens`. The bound within a scope (a session, or a task with its
sub-agents) needs more than the parent link where the longest shared prefix stands in another scope,
as in a resumed session: the calls in between are then compared through the tree of parent links,
where two calls share the least `shared_tokens` on the way between them.

Left out: capacity, eviction, pages, and outputs that return in later prompts.
"""

from __future__ import annotations

import numpy as np

from v4traces.table import Int32s, Int64s, TraceTable


def scoped_bound_tokens(table: TraceTable, scope: Int32s) -> Int64s:
    """Per row: the longest prefix shared with an earlier row of the same scope, by parent links.

    `scope` gives each row's scope as a code. Groups do not count: they are between roots.
    """
    parent = table.parent
    inside = (parent >= 0) & (scope[np.maximum(parent, 0)] == scope)
    bound = np.where(inside, table.shared_tokens, 0)
    outside = (parent >= 0) & ~inside
    _, first, where = np.unique(scope, return_index=True, return_inverse=True)
    is_first = np.zeros(table.n, dtype=np.bool_)
    is_first[first] = True
    needed = np.unique(where[outside & ~is_first])
    if needed.size == 0:
        return bound
    tree = _Tree(table)
    rows_of = np.argsort(where, kind="stable")
    starts = np.searchsorted(where[rows_of], needed, side="left").tolist()
    stops = np.searchsorted(where[rows_of], needed, side="right").tolist()
    for start, stop in zip(starts, stops, strict=True):
        covered: dict[int, int] = {}
        for row in rows_of[start:stop].tolist():
            if outside[row]:
                bound[row] = tree.shared_with(row, covered)
            tree.cover(row, covered)
    return bound


class _Tree:
    """The parent links as Python lists, since walks go one row at a time."""

    def __init__(self, table: TraceTable) -> None:
        self._parent = table.parent.tolist()
        self._shared = table.shared_tokens.tolist()
        self._prompt = table.prompt_tokens.tolist()

    def cover(self, row: int, covered: dict[int, int]) -> None:
        """Note for `row` and its ancestors how many of their leading tokens are in `row`'s prompt."""
        tokens = self._prompt[row]
        # An ancestor that is covered as far already has all of its own ancestors covered so too.
        while row >= 0 and covered.get(row, -1) < tokens:
            covered[row] = tokens
            tokens = min(tokens, self._shared[row])
            row = self._parent[row]

    def shared_with(self, row: int, covered: dict[int, int]) -> int:
        """The longest prefix of `row`'s prompt that is in any covered prompt."""
        tokens, best = self._prompt[row], 0
        while row >= 0 and tokens > best:
            best = max(best, min(tokens, covered.get(row, 0)))
            tokens = min(tokens, self._shared[row])
            row = self._parent[row]
        return int(best)


def previous_in_session(table: TraceTable) -> Int64s:
    """Per row: the row of the same session before it, -1 for the first."""
    order = np.argsort(table.session, kind="stable")
    previous = np.full(table.n, -1, dtype=np.int64)
    same = table.session[order][1:] == table.session[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    return previous


def lost_tokens(table: TraceTable, bound: Int64s, previous: Int64s) -> Int64s:
    """Per row: how much of the previous prompt it does not repeat, though it is long enough to."""
    before = np.where(previous >= 0, table.prompt_tokens[np.maximum(previous, 0)], 0)
    return np.maximum(np.minimum(before, table.prompt_tokens) - bound, 0)
