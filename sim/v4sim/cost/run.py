"""Decode steps of fixed rows, priced one by one in loops: what `ProfileCost.decode` prices at once.

Made for the rows of a batch and asked step after step: `begin`, the contexts of each `rank`, then `put`. The
same operations in the same order as `ProfileCost.step`, so the same integers. For compiled code.
Units: tokens, nanoseconds.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from v4sim.cost.base import PART_INDEX
from v4sim.cost.step import FixedRows

_SCAN: Final = PART_INDEX["index_scan"]
_TOPK: Final = PART_INDEX["topk"]
_OTHER: Final = PART_INDEX["attention_other"]
_HCA: Final = PART_INDEX["hca"]
_SWA: Final = PART_INDEX["swa"]
_MHC: Final = PART_INDEX["mhc"]
_CPU: Final = PART_INDEX["cpu"]


class DecodeRun:
    """Consecutive decode steps with the same rows."""

    def __init__(self, fixed: FixedRows) -> None:
        self._fixed = fixed
        self._attention = fixed.attention
        self._common: vec[i64] = vec[i64](fixed.parts_ns)
        self._best = -1.0
        self._scan = self._topk = self._other = self._hca = self._swa = self._mhc = 0.0
        self._sum: i64 = 0  # the largest so far
        self._top: i64 = 0

    def begin(self) -> None:
        """The next step."""
        self._best = -1.0

    def rank(self, rank: int, ctx_sum: i64, ctx_max: i64) -> None:
        """In this step the contexts of a rank that decodes are `ctx_sum` tokens in all and `ctx_max` at most."""
        fixed = self._fixed
        terms, mhc = fixed.terms[rank], fixed.mhc_ns[rank]
        scan, topk, other, hca = self._attention.decode_parts(terms, float(ctx_sum), float(ctx_max))
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
        common, fixed = self._common, self._fixed
        for part in range(len(common)):
            parts_ns[at + part] = common[part]
        parts_ns[at + _SCAN], parts_ns[at + _TOPK] = round(self._scan), round(self._topk)
        parts_ns[at + _OTHER], parts_ns[at + _HCA] = round(self._other), round(self._hca)
        parts_ns[at + _SWA], parts_ns[at + _MHC] = round(self._swa), round(self._mhc)
        lasted: i64 = 0
        for part in range(len(common)):
            lasted += parts_ns[at + part]
        cpu: i64 = fixed.cpu_ns
        if fixed.hidden_cpu:
            cpu = max(cpu - lasted, 0)
        parts_ns[at + _CPU] = cpu
        return lasted + cpu

    def end(self) -> None:
        """The steps are priced: note how far they went."""
        self._fixed.seen.decoding(self._sum, self._top)
