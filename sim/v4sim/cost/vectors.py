"""Coefficients of the vector path: `DecodeTerms` of every rank, laid out for few numpy calls.

Pure rearrangement: each number is the one that the scalar path uses. Units: nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from v4sim.cost.attention import DecodeTerms
from v4sim.cost.base import PARTS, Int64

Float64 = NDArray[np.float64]


class Vectors(NamedTuple):
    """Coefficients of fixed rows and width; the last axis is the rank."""

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
    common: Int64  # [parts, 1]: what is the same in every step
    common_ns: int
    busy: bool

    @classmethod
    def of(cls, terms: Sequence[DecodeTerms], mhc: Sequence[float], common: list[int] | None) -> Vectors:
        """From the terms and mHC times of each rank; `common` is None where no rank has anything to do."""
        zero = [0.0] * len(terms)
        shared = common or [0] * len(PARTS)
        return cls(
            slopes=_stacked(
                [t.scan_slope for t in terms],
                [t.topk_rate_slope for t in terms],
                [t.hca_slope for t in terms],
            ),
            bases=_stacked([t.scan_base for t in terms], [t.topk_rate_base for t in terms], zero),
            fill_cap=np.array([t.fill_cap for t in terms]),
            fill_slope=np.array([t.fill_slope for t in terms]),
            other_base=np.array([t.other_base for t in terms]),
            tail_slope=np.array([t.tail_slope for t in terms]),
            hca_base=np.array([t.hca_base for t in terms]),
            pool_cap=np.array([t.pool_cap for t in terms]),
            pool_slope=np.array([t.pool_slope for t in terms]),
            alone=np.array([t.swa + x for t, x in zip(terms, mhc, strict=True)]),
            constants=np.array([[round(t.swa) for t in terms], [round(x) for x in mhc]]),
            common=np.array(shared)[:, None],
            common_ns=sum(shared),
            busy=common is not None,
        )


def _stacked(*rows: list[float]) -> Float64:
    return np.array(rows)[:, None, :]
