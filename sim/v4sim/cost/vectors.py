"""Coefficients of the vector path: `DecodeTerms` by number of sequences, laid out for few numpy calls.

Pure rearrangement: each number is the one that the scalar path uses. A table has one row per number of
sequences on a rank and grows as needed; the coefficients of a batch are the rows of its ranks.
Units: nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from v4sim.cost.attention import DecodeTerms

Float64 = NDArray[np.float64]
_FIELDS = 16


class Vectors(NamedTuple):
    """Coefficients of a batch, each [steps, ranks]: numpy is three times as slow where shapes differ."""

    attention: Float64  # six rows: `slopes`, to be replaced by what they lead to, swa and mhc
    slopes: Float64  # four rows: the rest of CSA over the filled context, then scan, top-k and HCA over all
    bases: Float64
    alone: Float64  # swa and mhc together
    hca_base: Float64
    fill_cap: Float64
    tail_slope: Float64
    pool_cap: Float64
    pool_slope: Float64


class VectorTable:
    """Coefficients of one verify width for any number of sequences on each rank."""

    def __init__(self, terms_of: Callable[[int], DecodeTerms], mhc_of: Callable[[int], float]) -> None:
        self._terms_of = terms_of
        self._mhc_of = mhc_of
        self._values: Float64 = np.zeros((_FIELDS, 0))

    def at(self, rows: Sequence[int], steps: int) -> Vectors:
        """The coefficients for `rows[r]` sequences on rank r in each of the steps; the caller's own."""
        most = max(rows)
        if most >= self._values.shape[1]:
            self._grow(most + 1)
        of_step = np.empty((steps, len(rows)), dtype=np.int64)
        of_step[:] = rows
        f = self._values.take(of_step, axis=1)
        return Vectors(f[:6], f[:4], f[6:10], f[10], f[11], f[12], f[13], f[14], f[15])

    def _grow(self, size: int) -> None:
        values = []
        known = self._values.shape[1]
        for rows in range(known, max(size, 2 * known)):
            t, mhc = self._terms_of(rows), self._mhc_of(rows)
            values.append(
                [
                    *(t.fill_slope, t.scan_slope, t.topk_rate_slope, t.hca_slope),
                    *(t.swa, mhc),
                    *(t.other_base, t.scan_base, t.topk_rate_base, 0.0),
                    t.swa + mhc,
                    *(t.hca_base, t.fill_cap, t.tail_slope, t.pool_cap, t.pool_slope),
                ]
            )
        self._values = np.concatenate([self._values, np.array(values).T], axis=1)
