"""The tree over vLLM's blocks: pages leave one by one, and two calls may each hold the same content.

vLLM's free list receives a request's blocks tail first, so a leaf loses pages from its end. What two calls
computed alike is not merged (`copies`); a hit goes over what came first.
"""

from __future__ import annotations

from v4sim.cache.copies import Copies
from v4sim.cache.node import SpanNode
from v4sim.cache.tree import SpanTree
from v4sim.prefix import PrefixIndex


class VLLMTree(SpanTree):
    """Spans of blocks. A leaf that loses its window keeps its history."""

    def __init__(self, prefixes: PrefixIndex) -> None:
        super().__init__(prefixes, keeps_leaves=True)
        self._copies = Copies(self._tails)

    def find(self, uid: int, limit_tokens: int) -> tuple[SpanNode | None, int]:
        node, length = super().find(uid, limit_tokens)
        if node is not None and node.uid in self._copies:
            node = self._copies.first(node, length)
        return node, length

    def touch(self, node: SpanNode) -> None:
        super().touch(node)
        above = node.parent if self._copies else None
        while above is not None:
            above.access = self.tick
            above = above.parent

    def split(self, node: SpanNode, at: int) -> SpanNode:
        upper = super().split(node, at)
        if node.uid in self._copies:
            self._copies.cut(node, upper)
        return upper

    def lead_to(self, node: SpanNode) -> None:
        """A hit goes over the first of what lies in several nodes, as far as nobody holds the way."""
        below = node
        while self._copies and below.locks == 0 and below.parent is not None:
            above = below.parent
            if above.uid in self._copies:
                first = self._copies.earlier(above)
                if first is not None:
                    end = min(first.end, above.end)
                    if end < above.end:
                        self.split(above, end)
                        below = above
                    elif end < first.end:
                        first = self.split(first, end)
                    self._move(below, first)
            assert below.parent is not None
            below = below.parent

    def _move(self, node: SpanNode, to: SpanNode) -> None:
        """`node` hangs below `to` from now on, which is a copy of what it hung below."""
        above = node.parent
        assert above is not None
        node.parent = to
        to.children += 1
        above.children -= 1
        if above.children == 0 and above.locks == 0:
            above.access = max(above.access, node.access)
            self._leaves.push(above)
        if node.uid == above.uid:
            self._copies.rerouted(above)

    def _meet(
        self, tail: SpanNode, start: int, end: int, above: SpanNode | None, swa_from: int
    ) -> tuple[SpanNode, int]:
        """Content that is resident already, computed by another call for itself."""
        node = self._add(tail.uid, start, end, above, swa_from)
        self._copies.add(node)
        return node, end - start

    def _append(
        self, uid: int, start: int, end: int, parent: SpanNode | None, swa_from: int, upto: int
    ) -> SpanNode:
        node = self._add(uid, start, end, parent, swa_from)
        self._copies.append(node)
        return node

    def _grain(self, leaf: SpanNode, wanted_tokens: int) -> int:
        page = self.page_tokens
        return min(leaf.tokens, -(-wanted_tokens // page) * page)

    def _shorten(self, node: SpanNode, cut: int) -> None:
        super()._shorten(node, cut)
        if node.uid in self._copies and self._tails[node.uid] is node:
            self._copies.follow_longest(node.uid, node)

    def _forget(self, node: SpanNode, before: SpanNode | None) -> None:
        if node.uid in self._copies:
            self._copies.remove(node, before)
        else:
            super()._forget(node, before)

    def lowest(self) -> list[SpanNode]:
        return [*super().lowest(), *self._copies.all()]
