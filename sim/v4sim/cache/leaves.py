"""The leaves of one tree in the order in which their history leaves: least recently used first.

A heap with lazy entries: a node is pushed whenever it becomes a leaf that nobody holds, and what has
changed since is found out when its entry surfaces. Entries that no longer count are swept out when they
may be the most, so a tree that loses its leaves otherwise (with their windows) keeps no dead nodes.
"""

from __future__ import annotations

import heapq

from v4sim.cache.node import SpanNode

_SMALLEST_SWEEP = 1024


class LeafQueue:
    """Unlocked leaves, oldest first; of what was used at once the deepest goes first."""

    __slots__ = ("_heap", "_sequence", "_sweep_at")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, SpanNode]] = []
        self._sequence = 0
        self._sweep_at = _SMALLEST_SWEEP

    def __len__(self) -> int:
        """Entries, those that no longer count included."""
        return len(self._heap)

    def push(self, node: SpanNode) -> None:
        """`node` has become an unlocked leaf."""
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        self._sequence += 1
        heapq.heappush(self._heap, (node.access, -node.end, self._sequence, node))

    def pop(self) -> SpanNode | None:
        """The leaf that goes next; None if there is none."""
        while self._heap:
            access, _, _, node = heapq.heappop(self._heap)
            if not _counts(node):
                continue
            if node.access == access:
                return node
            self.push(node)  # used since
        return None

    def oldest(self) -> int | None:
        """When the leaf that goes next was used last; None if there is none."""
        while self._heap:
            access, _, _, node = self._heap[0]
            if _counts(node) and node.access == access:
                return access
            heapq.heappop(self._heap)
            if _counts(node):
                self.push(node)
        return None

    def _sweep(self) -> None:
        """One entry a leaf: of those with its latest use the first. That changes no answer of `pop`."""
        kept: dict[SpanNode, tuple[int, int, int, SpanNode]] = {}
        for entry in self._heap:
            node = entry[3]
            if not _counts(node):
                continue
            other = kept.get(node)
            if other is None or entry[0] > other[0] or (entry[0] == other[0] and entry < other):
                kept[node] = entry
        self._heap = list(kept.values())
        heapq.heapify(self._heap)
        self._sweep_at = max(_SMALLEST_SWEEP, 2 * len(self._heap))


def _counts(node: SpanNode) -> bool:
    return node.alive and not node.children and not node.locks
