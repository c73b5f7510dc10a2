"""What the calls of a trace have in common: a tree of content spans.

A call's content is its prompt followed by its output. A trace states for each call which earlier
call it extends and for how many tokens, so all content forms a tree: each call adds one *own span*
that hangs off another call's content at some length. A cache that holds pages can share whole
pages only, hence every span starts at the page below the first token that differs.

Content ids (`uid`): the trace row for the first copy of a session, `row + copy · stride` for later
copies, and one id per group for the common prefix of that group's roots, which all copies share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from v4traces import TraceTable

NO_PARENT = -1


class PrefixIndex:
    """Parent and start of every own span, floored to pages of `page_tokens`.

    `parent(uid)` is `NO_PARENT` where the content shares nothing. Law: start(uid) is a multiple
    of the page and lies strictly above the start of its parent, so climbing always ends.
    """

    def __init__(self, table: TraceTable, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        rows = table.n
        groups = len(table.group_names)
        self.stride = rows + groups
        self._num_rows = rows
        shared = table.shared_tokens + table.shared_output_tokens
        start = (shared // page_tokens) * page_tokens
        parent = table.parent.astype(np.int64).copy()
        in_group = (parent < 0) & (table.group >= 0)
        group_start = (table.group_tokens // page_tokens) * page_tokens
        start[in_group] = group_start[in_group]
        parent[in_group] = rows + table.group[in_group]
        parent[start == 0] = NO_PARENT
        start[parent < 0] = 0
        self._start: list[int] = start.tolist() + [0] * groups
        self._parent: list[int] = parent.tolist() + [NO_PARENT] * groups
        self._attach_to_owner()

    def _attach_to_owner(self) -> None:
        """Hang each span off the call that owns the token before it, not merely a call that repeats it.

        Rows stand after their parents, so one pass in order is enough.
        """
        start, parent = self._start, self._parent
        for row in range(self._num_rows):
            above = parent[row]
            if above >= 0 and start[row] <= start[above]:
                while above >= 0 and start[row] <= start[above]:
                    above = parent[above]
                parent[row] = above
                if above < 0:
                    start[row] = 0

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
