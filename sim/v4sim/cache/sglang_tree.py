"""The radix tree as SGLang cuts it: one insertion is one node, but for its window and its last page.

SGLang gives what lies before a window, the window and its last page nodes of their own, and keeps in one
node what a call inserted at once, whosoever content that is. Spans end where contents part, so here
the former are `cuts` inside a span and the latter goes on in the `rest` of a span. Nodes are split where a
match ends, which is a use of both parts, and evicted whole.
"""

from __future__ import annotations

from v4sim.cache.node import SpanNode
from v4sim.cache.tree import SpanTree
from v4sim.cache.windows import NodeWindows, Windows


class SGLangTree(SpanTree):
    """Spans, and where SGLang's nodes begin and end among them."""

    def touch(self, node: SpanNode) -> None:
        self._part_windows(node)
        super().touch(node)

    def _make_windows(self) -> Windows:
        return NodeWindows(self.page_tokens)

    def _part_windows(self, node: SpanNode) -> None:
        """Cut off what is not read of the windows that a use of `node` reads: it stays as old as it is."""
        left = self._reach_tokens
        above: SpanNode | None = node
        while above is not None and left > 0:
            last = above.cuts[-1] if above.cuts else above.start
            left -= above.end - last
            if left <= 0 and above.swa_start < last:
                self._cut(above, last)
            elif last > above.start:
                return  # the rest of this node is read as well
            above = above.parent

    def split(self, node: SpanNode, at: int) -> SpanNode:
        """In SGLang a use of both parts of its node, unless it kept two nodes there already."""
        if at in node.cuts:
            return self._cut(node, at)
        after = next((cut for cut in node.cuts if cut > at), node.end)
        lower = node if after == node.end else self._cut(node, after)
        upper = self._cut(lower, at)
        self._use_rest(lower)
        upper.access = lower.access
        return upper

    def ended_at(self, node: SpanNode, at: int) -> SpanNode:
        if node.end != at:
            return self.split(node, at)
        self._end_node(node)
        return node

    def _end_node(self, node: SpanNode) -> None:
        """SGLang's node ends where `node` does from now on: a cut between spans."""
        rest, node.rest = node.rest, None
        if rest is not None:
            self._use_rest(rest)

    def _use_rest(self, node: SpanNode) -> None:
        """What is left of SGLang's node from the beginning of `node` on counts as used."""
        self.tick += 1
        while True:
            if node.cuts:
                node = self._cut(node, node.cuts[0])
            node.access = self.tick
            if node.rest is None:
                return
            node = node.rest

    def _cut(self, node: SpanNode, at: int) -> SpanNode:
        """`split` without a use."""
        windows = self.windows
        read = windows.read_tokens(node) if node.swa_locks else 0
        upper = super().split(node, at)
        if node.cuts:
            upper.cuts = tuple([cut for cut in node.cuts if cut < at])
            node.cuts = tuple([cut for cut in node.cuts if cut > at])
        if node.swa_locks:
            windows.protected_tokens += windows.read_tokens(node) - read
        if upper.parent is not None and upper.parent.rest is node:
            upper.parent.rest = upper
        return upper

    def _append(
        self, uid: int, start: int, end: int, parent: SpanNode | None, swa_from: int, upto: int
    ) -> SpanNode:
        places = (swa_from, upto - self.page_tokens)
        if parent is not None:
            # `parent` belongs to the same insertion exactly if it was made by it.
            together = parent.born == self.tick and start not in places
            if parent.rest is not None:
                self._end_node(parent)
        else:
            together = False
        node = super()._append(uid, start, end, parent, swa_from, upto)
        if node.swa_start < end:
            node.cuts = tuple([cut for cut in sorted({node.swa_start, places[1]}) if start < cut < end])
        if together and parent is not None:
            parent.rest = node
        return node

    def _restore(self, node: SpanNode, swa_from: int) -> None:
        begin = node.swa_start
        super()._restore(node, swa_from)
        if node.start < swa_from < begin and swa_from not in node.cuts:
            node.cuts = tuple(sorted([*node.cuts, swa_from]))

    def _evict_leaf(self, leaf: SpanNode, wanted_tokens: int) -> int:
        freed = super()._evict_leaf(leaf, wanted_tokens)
        above = leaf.parent
        while not leaf.alive and above is not None and above.rest is leaf and not above.locks:
            leaf, above = above, above.parent  # SGLang's node goes on upwards
            leaf.rest = None
            freed += super()._evict_leaf(leaf, wanted_tokens)
        return freed

    def _grain(self, leaf: SpanNode, wanted_tokens: int) -> int:
        return leaf.end - leaf.cuts[-1] if leaf.cuts else leaf.tokens

    def _window_stop(self, node: SpanNode, last: int) -> int:
        stop = last
        for cut in node.cuts:
            if node.swa_start < cut < stop:
                stop = cut
        return stop

    def _shorten(self, node: SpanNode, cut: int) -> None:
        node.cuts = node.cuts[:-1]
        super()._shorten(node, cut)
