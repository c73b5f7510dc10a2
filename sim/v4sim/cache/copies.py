"""Content that lies in several nodes: vLLM does not merge what two calls computed alike.

Each call keeps the blocks it computed, and all of them leave in their turn. It happens where a hit stops
short of what is there: at the last token of a prompt, at the block that draft layers cannot use, and between
prompts that are computed side by side. Lookups of a content follow one node, its tail; here are the others.

vLLM takes block by block what came first, and so does a hit here, but for the part of its way that another
call holds already: that call's own copies are shared.
"""

from __future__ import annotations

from v4sim.cache.node import SpanNode


class Copies:
    """The nodes of each content that its tail does not lead to. Keeps the tree's `tails` in step."""

    __slots__ = ("_nodes", "_tails")

    def __init__(self, tails: dict[int, SpanNode]) -> None:
        self._tails = tails
        self._nodes: dict[int, list[SpanNode]] = {}

    def __contains__(self, uid: int) -> bool:
        return uid in self._nodes

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def add(self, node: SpanNode) -> None:
        self._nodes.setdefault(node.uid, []).append(node)

    def first(self, node: SpanNode, at: int) -> SpanNode:
        """Of `node` and its copies that contain `at`, the one that came first."""
        alike = [copy for copy in self._nodes[node.uid] if copy.start < at <= copy.end]
        return min([node, *alike], key=lambda copy: copy.born)

    def earlier(self, node: SpanNode) -> SpanNode | None:
        """What begins where `node` begins, is the same content and came before it, the first of all such."""
        uid = node.uid
        alike = [*self._nodes[uid], *_path(self._tails[uid], uid)]
        alike = [copy for copy in alike if copy.start == node.start and copy.born < node.born]
        return min(alike, key=lambda copy: copy.born, default=None)

    def cut(self, node: SpanNode, upper: SpanNode) -> None:
        """`upper` was cut off `node`."""
        if node in self._nodes[node.uid]:
            self._nodes[node.uid].append(upper)

    def rerouted(self, node: SpanNode) -> None:
        """What was below `node` now follows a copy of it."""
        self._set_aside(node, self._tails[node.uid])

    def append(self, node: SpanNode) -> None:
        """`node` goes on from what may be a copy; it is the tail from now on."""
        tail = self._tails.get(node.uid)
        if tail is not None and tail is not node.parent:
            self._set_aside(tail, node)
        self._tails[node.uid] = node

    def remove(self, node: SpanNode, before: SpanNode | None) -> None:
        """`node` is gone; `before` is what led to it within its content."""
        uid = node.uid
        self._nodes[uid] = [copy for copy in self._nodes[uid] if copy is not node]
        if self._tails[uid] is node:
            self.follow_longest(uid, before)
        elif not self._nodes[uid]:
            del self._nodes[uid]

    def follow_longest(self, uid: int, node: SpanNode | None) -> None:
        """Lookups of `uid` follow the longest that is left: `node`, or a copy."""
        longest = max(self._nodes[uid], key=lambda copy: copy.end, default=None)
        if longest is None or (node is not None and node.end >= longest.end):
            longest = node
        if longest is None:
            del self._nodes[uid], self._tails[uid]
            return
        self._tails[uid] = longest
        self._set_aside(longest if node is None else node, longest)

    def all(self) -> list[SpanNode]:
        return [copy for uid in sorted(self._nodes) for copy in self._nodes[uid]]

    def _set_aside(self, tail: SpanNode, instead: SpanNode) -> None:
        """What leads to `tail` and not to `instead` are copies, what leads to `instead` is none."""
        uid = tail.uid
        path = _path(instead, uid)
        copies = [copy for copy in self._nodes.pop(uid, ()) if copy not in path]
        copies += [node for node in _path(tail, uid) if node not in path and node not in copies]
        if copies:
            self._nodes[uid] = copies


def _path(node: SpanNode | None, uid: int) -> list[SpanNode]:
    """`node` and what leads to it within content `uid`."""
    path: list[SpanNode] = []
    while node is not None and node.uid == uid:
        path.append(node)
        node = node.parent
    return path
