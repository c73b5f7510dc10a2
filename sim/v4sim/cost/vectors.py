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
from v4sim.cost.base import Int64

Float64 = NDArray[np.float64]
_FIELDS = 14


class Vectors(NamedTuple):
    """Coefficients of a batch; the last axis is the rank."""

    slopes: Float64  # [3, 1, ranks] of scan, saturated top-k, saturated HCA over the context sum
    bases: Float64
    fill_cap: Float64  # [ranks], as are those below
    fill_slope: Float64
    other_base: Float64
    tail_slope: Float64
    hca_base: Float64
    pool_cap: Float64
    pool_slope: Float64
    alone: Float64
    constants: Int64  # [2, ranks]: swa, mhc


class VectorTable:
    """Coefficients of one verify width for any number of sequences on each rank."""

    def __init__(self, terms_of: Callable[[int], DecodeTerms], mhc_of: Callable[[int], float]) -> None:
        self._terms_of = terms_of
        self._mhc_of = mhc_of
        self._values: Float64 = np.zeros((0, _FIELDS))
        self._constants: Int64 = np.zeros((0, 2), dtype=np.int64)

    def at(self, rows: Sequence[int]) -> Vectors:
        """The coefficients for `rows[r]` sequences on rank r."""
        most = max(rows)
        if most >= len(self._values):
            self._grow(most + 1)
        f = self._values.take(rows, axis=0).T
        return Vectors(
            slopes=f[0:3, None],
            bases=f[3:6, None],
            fill_cap=f[6],
            fill_slope=f[7],
            other_base=f[8],
            tail_slope=f[9],
            hca_base=f[10],
            pool_cap=f[11],
            pool_slope=f[12],
            alone=f[13],
            constants=self._constants.take(rows, axis=0).T,
        )

    def _grow(self, size: int) -> None:
        values, constants = [], []
        for rows in range(len(self._values), max(size, 2 * len(self._values))):
            t, mhc = self._terms_of(rows), self._mhc_of(rows)
            values.append(
                [
                    *(t.scan_slope, t.topk_rate_slope, t.hca_slope),
                    *(t.scan_base, t.topk_rate_base, 0.0),
                    *(t.fill_cap, t.fill_slope, t.other_base, t.tail_slope),
                    *(t.hca_base, t.pool_cap, t.pool_slope, t.swa + mhc),
                ]
            )
            constants.append([round(t.swa), round(mhc)])
        self._values = np.concatenate([self._values, np.array(values)])
        self._constants = np.concatenate([self._constants, np.array(constants)])
