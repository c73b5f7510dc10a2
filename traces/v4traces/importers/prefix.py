"""Finds, for each prompt, the earliest prompt that shares its longest prefix of whole blocks.

A compressed trie over block ids: an edge covers a span of positions and points into the ids of one
call that runs through it. A session that only appends keeps one edge, so the cost of a call is one
comparison of arrays, linear in its blocks. Ids are compared for equality only, so wide ones are
interned, never cast: two 64-bit hashes with equal low halves stay different.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from v4traces.errors import TraceError

Blocks = NDArray[np.int64]


class BlockIds:
    """Turns the ids of one scope (a file, or a whole trace) into int64 without losing a bit."""

    def __init__(self) -> None:
        self._wide: dict[Hashable, int] = {}

    def blocks(self, ids: Sequence[int | str], where: str = "hash ids") -> Blocks:
        """Equal ids give equal numbers, different ids different ones; any ints or strings.

        `where` begins the message of the `TraceError` about an id that is neither.
        """
        try:
            narrow = np.frombuffer(array("q", cast("list[int]", ids)), dtype=np.int64)
        except (OverflowError, TypeError):
            narrow = None
        if narrow is not None and not (narrow < 0).any():
            return narrow
        for block in ids:
            if not isinstance(block, (int, str)):
                raise TraceError(
                    f"{where}: a hash id is a {type(block).__name__}; ids are whole numbers or strings."
                )
        return np.fromiter(map(self._number, ids), np.int64, len(ids))

    def _number(self, block: int | str) -> int:
        if type(block) is int and 0 <= block < 1 << 63:
            return block
        # Numbers below zero are free: narrow ids are never negative.
        return self._wide.setdefault((type(block), block), -1 - len(self._wide))


class Match(NamedTuple):
    """`call` is -1 and `num_blocks` 0 if no earlier prompt shares the first block."""

    call: int
    num_blocks: int


class _Edge:
    __slots__ = ("blocks", "children", "owners", "stop", "stops")

    def __init__(self, blocks: Blocks, stop: int, call: int) -> None:
        self.blocks = blocks  # of a call that runs through this edge
        self.stop = stop
        self.children: dict[int, _Edge] = {}
        # owners[i] is the first call that reached positions up to stops[i]; stops ascend.
        self.stops = [stop]
        self.owners = [call]

    def owner(self, depth: int) -> int:
        return self.owners[bisect_left(self.stops, depth)]

    def extend(self, blocks: Blocks, call: int) -> None:
        self.blocks, self.stop = blocks, blocks.size
        self.stops.append(self.stop)
        self.owners.append(call)

    def split(self, depth: int) -> None:
        """End this edge at `depth`; what it covered beyond becomes its only child."""
        at = bisect_left(self.stops, depth)
        below = _Edge(self.blocks, self.stop, self.owners[-1])
        below.children = self.children
        below.stops, below.owners = self.stops[at:], self.owners[at:]
        self.stops, self.owners = [*self.stops[:at], depth], self.owners[: at + 1]
        self.stop = depth
        self.children = {int(self.blocks[depth]): below}


class PrefixFinder:
    """Holds all prompts of one scope of block ids."""

    def __init__(self) -> None:
        self._roots: dict[int, _Edge] = {}

    def add(self, blocks: Blocks, call: int) -> Match:
        """Match `blocks` against all earlier prompts, then remember them as those of `call`."""
        depth, owner, size = 0, -1, blocks.size
        children = self._roots
        while depth < size:
            edge = children.get(int(blocks[depth]))
            if edge is None:
                children[int(blocks[depth])] = _Edge(blocks, size, call)
                break
            stop = min(edge.stop, size)
            differ = blocks[depth:stop] != edge.blocks[depth:stop]
            first = int(differ.argmax())
            end = depth + first if differ[first] else stop
            owner = edge.owner(end)
            depth = end
            if end < stop:
                edge.split(end)
                edge.children[int(blocks[end])] = _Edge(blocks, size, call)
                break
            if size <= edge.stop:
                break
            if not edge.children:
                edge.extend(blocks, call)
                break
            children = edge.children
        return Match(owner, depth)
