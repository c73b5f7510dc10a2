"""Decode steps of fixed rows, priced one by one in loops: what `ProfileCost.decode` prices at once.

Asked step after step: `begin`, the contexts of each `rank`, then `put`. The same operations in the same
order as `ProfileCost.step`, so the same integers. For compiled code.
Units: tokens, nanoseconds.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from v4sim.cost.base import PART_INDEX
from v4sim.cost.step import ProfileCost
from v4sim.cost.tables import whole

_SCAN: Final = PART_INDEX["index_scan"]
_TOPK: Final = PART_INDEX["topk"]
_OTHER: Final = PART_INDEX["attention_other"]
_HCA: Final = PART_INDEX["hca"]
_SWA: Final = PART_INDEX["swa"]
_MHC: Final = PART_INDEX["mhc"]
_CPU: Final = PART_INDEX["cpu"]


class DecodeRun:
    """Consecutive decode steps with the same rows. `start` makes it one of other rows."""

    def __init__(self, cost: ProfileCost) -> None:
        self.cost = cost
        self._attention = cost.attention
        self._lines = cost.attention.topk_line
        self._fixed = cost.fixed([], 1)
        self._pieces: list[int] = []  # of the context lines, where each rank's longest context is
        self._best = -1.0
        self._scan = self._topk = self._other = self._hca = self._swa = self._mhc = 0.0
        self._sum: i64 = 0  # the largest of all steps
        self._top: i64 = 0

    def start(self, rows: list[int], width: int) -> None:
        """From now on `rows` sequences decode on each rank."""
        self._fixed = self.cost.fixed(rows, width)
        self._pieces = [0] * len(rows)
        self._sum = self._top = 0

    def begin(self) -> None:
        """The next step."""
        self._best = -1.0

    def rank(self, rank: int, ctx_sum: i64, ctx_max: i64) -> None:
        """The contexts of a rank that decodes, in all and the longest; no shorter than in the step before."""
        fixed = self._fixed
        terms, mhc = fixed.terms[rank], fixed.mhc_ns[rank]
        m = float(ctx_max)
        piece = self._lines.piece_from(self._pieces[rank], m)
        self._pieces[rank] = piece
        scan, topk, other, hca = self._attention.decode_parts(terms, float(ctx_sum), m, piece)
        total = scan + other + topk + hca + (terms.swa + mhc)
        if total > self._best:
            self._best = total
            self._scan, self._topk, self._other = scan, topk, other
            self._hca, self._swa, self._mhc = hca, terms.swa, mhc
        if ctx_sum > self._sum:
            self._sum = ctx_sum
        if ctx_max > self._top:
            self._top = ctx_max

    def put(self, parts_ns: vec[i64], at: i64) -> i64:
        """Write the parts of this step from `at` on; returns how long it lasts."""
        fixed = self._fixed
        part: i64 = at
        lasted: i64 = 0
        for shared in fixed.parts_ns:
            ns: i64 = shared
            parts_ns[part] = ns
            lasted += ns
            part += 1
        lasted += _put(parts_ns, at + _SCAN, self._scan) + _put(parts_ns, at + _TOPK, self._topk)
        lasted += _put(parts_ns, at + _OTHER, self._other) + _put(parts_ns, at + _HCA, self._hca)
        lasted += _put(parts_ns, at + _SWA, self._swa) + _put(parts_ns, at + _MHC, self._mhc)
        cpu: i64 = fixed.cpu_ns
        if fixed.hidden_cpu:
            cpu = max(cpu - lasted, 0)
        parts_ns[at + _CPU] = cpu
        return lasted + cpu

    def end(self) -> None:
        """The steps are priced: note how far they went."""
        self._fixed.seen.decoding(self._sum, self._top)


def _put(parts_ns: vec[i64], at: i64, ns: float) -> i64:
    rounded: i64 = whole(ns)
    parts_ns[at] = rounded
    return rounded
