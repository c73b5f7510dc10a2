"""The nodes of one tree that hold sliding-window tokens, in the order in which they lose them.

A doubly linked list through the nodes, as in SGLang's SWA cache: using a node moves it to the newest
end, eviction reads from the oldest. A node is linked exactly while it is resident and holds some
window. What a node is linked to afterwards means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from v4sim.cache.node import SpanNode
from v4sim.prefix import NO_PARENT


class WindowList:
    """Least recently used first. The two ends of the list meet in a node of no content."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends = ends = SpanNode(NO_PARENT, 0, 0, None, 0)
        ends.older = ends.newer = ends

    def __iter__(self) -> Iterator[SpanNode]:
        """From the oldest; the node just given out may be removed meanwhile."""
        ends = self._ends
        node = ends.newer
        while node is not ends:
            following = node.newer
            yield node
            node = following

    def add(self, node: SpanNode) -> None:
        """Link `node` as the newest."""
        self._link(node, self._ends)

    def add_before(self, node: SpanNode, newer: SpanNode) -> None:
        """Link `node` as the one that goes right before `newer`."""
        self._link(node, newer)

    def remove(self, node: SpanNode) -> None:
        older, newer = node.older, node.newer
        older.newer = newer
        newer.older = older

    def renew(self, node: SpanNode) -> None:
        """`node`, if it holds a window, becomes the newest; those above it stay where they are."""
        if node.swa_start < node.end:
            self.remove(node)
            self.add(node)

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
                    self.remove(above)
                    self._link(above, newer)
                newer = above
            above = above.parent

    def _link(self, node: SpanNode, newer: SpanNode) -> None:
        older = newer.older
        node.older, node.newer = older, newer
        older.newer = newer.older = node
