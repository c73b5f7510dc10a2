"""The totals of one epoch of engine time, collected piece by piece and added up in bulk.

An epoch takes what the engine's observers are told (single steps, blocks of decode steps, bursts of
tokens) as it comes and turns it into sums when asked, or when enough has gathered. Histograms keep only
the bins they use.
Units: integer nanoseconds.
"""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from v4sim.cost.base import PARTS
from v4sim.metrics.histogram import LogHistogram, Used, Weighted, tally
from v4sim.results import STEP_KINDS

_DECODE, _MIXED = STEP_KINDS.index("decode"), STEP_KINDS.index("mixed")

_MOST_PIECES = 16

Int64s = NDArray[np.int64]


# Where every burst is one token, the two forms of inter-token time are one: `both`.
HISTOGRAMS = (*STEP_KINDS, "burst", "divided", "both")


class Epoch:
    """The totals of one epoch. Collects what comes, and adds it up in bulk."""

    def __init__(self, replicas: int, ranks: int) -> None:
        self.parts = np.zeros((len(STEP_KINDS), len(PARTS)), dtype=np.int64)
        self.counts = np.zeros(len(STEP_KINDS), dtype=np.int64)
        self.busy = np.zeros((replicas, ranks), dtype=np.int64)
        self.mixed = [0, 0]
        self.histograms: dict[str, list[Used]] = {name: [] for name in HISTOGRAMS}
        # Not added up yet. Of each single step, one after the other: replica, kind, parts, and per rank rows
        # and new tokens. Of each block (replica, parts, rows), and bursts.
        self.singles = array("q")
        self.blocks: list[tuple[int, Int64s, list[int]]] = []
        self.burst: Weighted = []
        self.both: Weighted = []
        self.firsts: list[tuple[Int64s, Int64s]] = []  # time and tokens of bursts
        self._later: list[Weighted] = []  # by size − 1: times of bursts of so many tokens, and their number
        self.size = 0

    def later(self, size: int) -> Weighted:
        """Where bursts of `size` tokens in steps of a common duration are collected."""
        while len(self._later) < size:
            self._later.append([])
        return self._later[size - 1]

    def fold(self) -> None:
        """Add up what was collected."""
        if self.singles:
            self._fold_singles()
        if self.blocks:
            self._fold_blocks()
        for name, values in (("burst", self.burst), ("divided", self._divided()), ("both", self.both)):
            if values:
                self._store(name, values)
                values.clear()
        self.size = 0

    def _divided(self) -> Weighted:
        """Per token of a burst, its share of the burst's time."""
        divided: Weighted = []
        if self.firsts:
            gaps = np.concatenate([gaps for gaps, _ in self.firsts])
            tokens = np.concatenate([tokens for _, tokens in self.firsts])
            divided.append((gaps // tokens, tokens))
            self.firsts.clear()
        for size, bursts in enumerate(self._later, 1):
            if bursts:
                durations = np.concatenate([durations for durations, _ in bursts])
                counts = np.concatenate([counts for _, counts in bursts])
                divided.append((durations // size, counts * size))
                bursts.clear()
        return divided

    def _store(self, name: str, weighted: Weighted) -> None:
        pieces = self.histograms[name]
        pieces.append(tally(weighted))
        if len(pieces) == _MOST_PIECES:
            # An epoch of a long run is folded thousands of times.
            together = LogHistogram()
            for piece in pieces:
                together.absorb(piece)
            pieces[:] = [together.used()]

    def _add_busy(self, replica_of: Int64s, busy: Int64s) -> None:
        for replica in range(len(self.busy)):
            self.busy[replica] += busy[replica_of == replica].sum(axis=0)

    def _fold_singles(self) -> None:
        ranks = self.busy.shape[1]
        steps = np.array(self.singles, dtype=np.int64).reshape(-1, 2 + len(PARTS) + 2 * ranks)
        del self.singles[:]
        kind_of, parts_ns = steps[:, 1], steps[:, 2 : -2 * ranks]
        rows, tokens = steps[:, -2 * ranks : -ranks], steps[:, -ranks:]
        durations = parts_ns.sum(axis=1)
        self._add_busy(steps[:, 0], durations[:, None] * ((rows > 0) | (tokens > 0)))
        for kind, name in enumerate(STEP_KINDS):
            mine = (kind_of == kind).nonzero()[0]
            if mine.size:
                self.parts[kind] += parts_ns[mine].sum(axis=0)
                self.counts[kind] += mine.size
                self._store(name, [(durations[mine], 1)])
        mixed = kind_of == _MIXED
        self.mixed[0] += int(tokens[mixed].sum())
        self.mixed[1] += int(rows[mixed].sum())

    def _fold_blocks(self) -> None:
        replicas, parts, rows = zip(*self.blocks, strict=True)
        self.blocks.clear()
        sizes = np.array([block.shape[1] for block in parts])
        parts_ns = np.concatenate(parts, axis=1)
        durations = parts_ns.sum(axis=0)
        first = np.cumsum(sizes) - sizes
        lasted = np.add.reduceat(durations, first)
        self.parts[_DECODE] += parts_ns.sum(axis=1)
        self.counts[_DECODE] += durations.size
        self._add_busy(np.array(replicas, dtype=np.int64), lasted[:, None] * (np.array(rows) > 0))
        self._store("decode", [(durations, 1)])
