"""The nodes of one tree that hold sliding-window tokens, in the order in which they lose them.

A doubly linked list through the nodes, as in SGLang's SWA cache: using a node moves it to the newest
end, eviction reads from the oldest. A node is linked exactly while it is resident and holds some
window. What a node is linked to afterwards means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from v4sim.cache.node import SpanNode
from v4sim.prefix import NO_PARENT


class Windows:
    """Least recently used first. The two ends of the list meet in a node of no content.

    `tokens` is the sum of what the nodes hold, `protected_tokens` of what calls read of it.
    """

    __slots__ = ("_ends", "_page_tokens", "protected_tokens", "tokens")

    def __init__(self, page_tokens: int) -> None:
        self.tokens = 0
        self.protected_tokens = 0
        self._page_tokens = page_tokens
        self._ends = ends = SpanNode(NO_PARENT, 0, 0, None, 0)
        ends.older = ends.newer = ends

    def __iter__(self) -> Iterator[SpanNode]:
        """From the oldest; the node just given out, and newer ones, may be removed meanwhile."""
        ends = self._ends
        older = ends
        while (node := older.newer) is not ends:
            yield node
            if older is not ends and older.newer is ends:
                older = ends  # it may be gone as well: begin anew
            elif older.newer is node:
                older = node

    def read_tokens(self, node: SpanNode) -> int:
        """What a call that holds `node` reads of its window: one page at its end; the rest may be evicted."""
        return min(node.end - node.swa_start, self._page_tokens)

    def hold(self, node: SpanNode) -> None:
        """A call reads the window at the end of `node`."""
        node.swa_locks += 1
        if node.swa_locks == 1:
            self.protected_tokens += self.read_tokens(node)

    def let_go(self, node: SpanNode) -> None:
        node.swa_locks -= 1
        if node.swa_locks == 0:
            self.protected_tokens -= self.read_tokens(node)

    def add(self, node: SpanNode) -> None:
        """`node` is new; its window, if it has one, is the newest."""
        if node.swa_start < node.end:
            self.tokens += node.end - node.swa_start
            self._link(node, self._ends)

    def part(self, upper: SpanNode, node: SpanNode) -> None:
        """`upper` was cut off `node`: what it took of the window goes right before the rest."""
        if upper.swa_start < upper.end:
            self._link(upper, node)

    def restore(self, node: SpanNode, swa_from: int) -> None:
        """Someone's tombstone: a newcomer brings the window back from `swa_from` on."""
        if swa_from >= node.swa_start:
            return
        if node.swa_locks:
            self.protected_tokens -= self.read_tokens(node)
        if node.swa_start == node.end:
            self._link(node, self._ends)
        self.tokens += node.swa_start - swa_from
        node.swa_start = swa_from
        if node.swa_locks:
            self.protected_tokens += self.read_tokens(node)

    def lose(self, node: SpanNode, upto: int) -> None:
        """Of the window of `node` what lies before `upto` is gone."""
        self.tokens -= upto - node.swa_start
        node.swa_start = upto
        if upto == node.end:
            self._unlink(node)

    def lose_end(self, node: SpanNode, end: int) -> None:
        """`node` ends at `end` from now on."""
        held = node.swa_tokens
        node.end = end
        node.swa_start = min(node.swa_start, end)
        self.tokens += node.swa_tokens - held
        if held and not node.swa_tokens:
            self._unlink(node)

    def remove(self, node: SpanNode) -> None:
        """`node` is gone, and its window with it."""
        if node.swa_start < node.end:
            self.tokens -= node.end - node.swa_start
            self._unlink(node)

    def use(self, node: SpanNode, reach_tokens: int) -> None:
        """The last `reach_tokens` up to the end of `node` become the newest, what ends there the last.

        The tail of a session is what a resume needs, so among windows used at once it goes last.
        """
        newer = self._ends
        above: SpanNode | None = node
        left = reach_tokens
        while above is not None and left > 0:
            left -= above.end - above.start
            if above.swa_start < above.end:
                if above.newer is not newer:
                    self._unlink(above)
                    self._link(above, newer)
                newer = above
            if self._goes_on_upwards(above):
                left = max(left, 1)
            above = above.parent

    def _goes_on_upwards(self, node: SpanNode) -> bool:
        """The window of `node` is one with that of the node above."""
        return False

    def _link(self, node: SpanNode, newer: SpanNode) -> None:
        older = newer.older
        node.older, node.newer = older, newer
        older.newer = newer.older = node

    def _unlink(self, node: SpanNode) -> None:
        older, newer = node.older, node.newer
        older.newer = newer
        newer.older = older
        # A node that lives on without a window must not keep its old neighbours, and theirs, in memory.
        node.older = node.newer = self._ends


class NodeWindows(Windows):
    """Windows as SGLang's nodes hold them: whole, be it across spans, from one cut to the next."""

    __slots__ = ()

    def read_tokens(self, node: SpanNode) -> int:
        """A call holds all of the node at the end of its prefix: one page, if nobody brought it back."""
        begin = node.cuts[-1] if node.cuts else node.start
        return node.end - max(begin, node.swa_start)

    def lose(self, node: SpanNode, upto: int) -> None:
        super().lose(node, upto)
        below = node.rest if upto == node.end else None
        if below is not None and below.swa_start == below.start and not below.swa_locks:
            self.lose(below, below.cuts[0] if below.cuts else below.end)

    def _goes_on_upwards(self, node: SpanNode) -> bool:
        return node.parent is not None and node.parent.rest is node and node.swa_start == node.start
