"""What the calls of a trace have in common: a tree of content spans.

A call's content is its prompt followed by its output. A trace states for each call which earlier
call it extends and for how many tokens, so all content forms a tree: each call adds one *own span*
that hangs off another call's content at some length. A cache that holds pages can share whole
pages only, hence every span starts at the page below the first token that differs. Where an engine tells
pages apart by some tokens after them as well (vLLM with MTP layers, which read one ahead), it starts at
the page whose tokens after it are still the same.

Content ids (`uid`): the trace row for the first copy of a session, `row + copy · stride` for later
copies, and one id per group for the common prefix of that group's roots, which all copies share. Where
cache keys cover more than tokens (`identity`), shadows of content under other keys follow the rows.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from v4sim.identity import Content

NO_PARENT: Final = -1


class PrefixIndex:
    """Parent and start of every own span, floored to pages of `page_tokens`.

    Pages are alike if they and the `lookahead_tokens` after them are.
    `parent(uid)` is `NO_PARENT` where the content shares nothing. Law: start(uid) is a multiple
    of the page and lies strictly above the start of its parent, so climbing always ends.
    """

    def __init__(self, table: Content, page_tokens: int, lookahead_tokens: int = 0) -> None:
        self.page_tokens = page_tokens
        self.lookahead_tokens = lookahead_tokens
        self._table = table
        self._exact: PrefixIndex | None = None
        rows = table.n
        groups = len(table.group_names)
        self.stride = rows + groups
        self._num_rows = rows
        shared = table.shared_tokens + table.shared_output_tokens
        start = np.maximum(0, shared - lookahead_tokens) // page_tokens * page_tokens
        parent = table.parent.astype(np.int64).copy()
        in_group = (parent < 0) & (table.group >= 0)
        group_start = np.maximum(0, table.group_tokens - lookahead_tokens) // page_tokens * page_tokens
        start[in_group] = group_start[in_group]
        parent[in_group] = rows + table.group[in_group]
        parent[start == 0] = NO_PARENT
        start[parent < 0] = 0
        self._attach_to_owner(start, parent)
        # Arrays of machine integers: a million Python ints would take ten times the room.
        of_groups = np.zeros(groups, dtype=np.int64)
        self._start = array("i", np.concatenate([start, of_groups]).astype(np.intc).tobytes())
        self._parent = array("i", np.concatenate([parent, of_groups + NO_PARENT]).astype(np.intc).tobytes())

    def _attach_to_owner(self, start: NDArray[np.int64], parent: NDArray[np.int64]) -> None:
        """Hang each span off the call that owns the token before it, not merely a call that repeats it.

        A span that starts no later than its parent's own lies in what the parent inherited, so it moves
        up to the grandparent; all such spans move at once, until none is left.
        """
        rows = self._num_rows
        starts = np.concatenate([start, np.zeros(self.stride - rows, dtype=np.int64)])
        parents = np.concatenate([parent, np.full(self.stride - rows, NO_PARENT)])
        moving = np.flatnonzero(parent >= 0)
        while moving.size:
            above = parents[moving]
            moving = moving[start[moving] <= starts[above]]
            parents[moving] = parents[parents[moving]]
            moving = moving[parents[moving] >= 0]
        parent[:] = parents[:rows]
        start[parent < 0] = 0

    def uid(self, row: int, copy: int) -> int:
        return row + copy * self.stride

    def row(self, uid: int) -> int:
        return uid % self.stride

    def start(self, uid: int) -> int:
        return self._start[uid if uid < self.stride else uid % self.stride]

    def parent(self, uid: int) -> int:
        if uid < self.stride:
            return self._parent[uid]
        copy, row = divmod(uid, self.stride)
        above = self._parent[row]
        # Group prefixes are one text however often a session is replayed.
        return above if above < 0 or above >= self._num_rows else above + copy * self.stride

    def common(self, uid: int, other: int) -> int:
        """Leading tokens that two contents share, in whole pages; no bound on their lengths."""
        caps: dict[int, int] = {}
        cap = 1 << 62
        while uid != NO_PARENT:
            caps[uid] = cap
            cap, uid = self.start(uid), self.parent(uid)
        cap = 1 << 62
        while other != NO_PARENT:
            if other in caps:
                return min(cap, caps[other])
            cap, other = self.start(other), self.parent(other)
        return 0

    def common_tokens(self, uid: int, other: int) -> int:
        """`common` to the token. An index of its own, made where somebody asks."""
        if self._exact is None:
            self._exact = PrefixIndex(self._table, 1)
        return self._exact.common(uid, other)

    def segments(self, uid: int, begin: int, upto: int) -> list[tuple[int, int]]:
        """(owner, end) of the spans of this content that reach into [begin, upto), first to last."""
        found = []
        end = upto
        while uid != NO_PARENT and end > begin:
            start = self.start(uid)
            if start < end:
                found.append((uid, end))
                end = start
            uid = self.parent(uid)
        found.reverse()
        return found
