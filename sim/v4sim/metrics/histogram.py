"""A histogram of nanoseconds with relative resolution, exact counts and exact sums.

A value's bin is the leading bits of its float64 representation: exponent and 7 bits of mantissa, so
a bin is at most 1/128 of its value wide and binning is exact integer work, the same on any machine.
Values are collected and binned in bulk.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_MANTISSA_BITS = 7
_SHIFT = 52 - _MANTISSA_BITS
_BIAS = (1023 << _MANTISSA_BITS) - 1  # bin 0 holds zero, the value 1 falls into bin 1
_BINS = (44 << _MANTISSA_BITS) + 2  # up to 2^44 ns, about 4.9 hours
_FLUSH = 1 << 17


class LogHistogram:
    """Weighted distribution of non-negative integers; bins at most 0.8 % wide."""

    def __init__(self) -> None:
        self.counts: NDArray[np.int64] = np.zeros(_BINS, dtype=np.int64)
        self._total_ns = 0
        self._min = -1
        self._max = 0
        # Not counted yet: values of one weight, and values with a weight each.
        self._alike: list[tuple[NDArray[np.int64], int]] = []
        self._weighted: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._size = 0

    def add(self, values_ns: NDArray[np.int64], weights: NDArray[np.int64] | int = 1) -> None:
        """Count each value with its weight; the arrays are kept until the next flush."""
        if values_ns.size:
            if isinstance(weights, int):
                self._alike.append((values_ns, weights))
            else:
                self._weighted.append((values_ns, weights))
            self._size += values_ns.size
        if self._size >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        if not self._size:
            return
        alike, weighted = self._alike, self._weighted
        sizes = [values.size for values, _ in alike]
        values = np.concatenate([values for values, _ in (*alike, *weighted)])
        repeated = np.repeat(np.array([weight for _, weight in alike], dtype=np.int64), sizes)
        weights = np.concatenate([repeated, *(weights for _, weights in weighted)])
        alike.clear()
        weighted.clear()
        self._size = 0
        counted = weights > 0
        if not counted.all():
            values, weights = values[counted], weights[counted]
            if not values.size:
                return
        self.counts += np.bincount(_bins(values), weights=weights, minlength=_BINS).astype(np.int64)
        self._total_ns += int((values * weights).sum())
        self._max = max(self._max, int(values.max()))
        low = int(values.min())
        self._min = low if self._min < 0 else min(self._min, low)

    @property
    def count(self) -> int:
        self.flush()
        return int(self.counts.sum())

    @property
    def total_ns(self) -> int:
        self.flush()
        return self._total_ns

    @property
    def mean(self) -> float:
        count = self.count
        return self._total_ns / count if count else float("nan")

    @property
    def min(self) -> int:
        self.flush()
        return max(self._min, 0)

    @property
    def max(self) -> int:
        self.flush()
        return self._max

    def quantile(self, q: float) -> float:
        """Smallest value with at least the share `q` at or below it, as its bin's middle; NaN when empty."""
        count = self.count
        if not count:
            return float("nan")
        rank = max(1, math.ceil(q * count))
        index = int(np.searchsorted(np.cumsum(self.counts), rank))
        low, high = _edge(index), _edge(index + 1)
        return float(min(max((low + high) / 2, self.min), self.max))


def _bins(values: NDArray[np.int64]) -> NDArray[np.int64]:
    bits = values.astype(np.float64).view(np.int64) >> _SHIFT
    clipped: NDArray[np.int64] = np.clip(bits - _BIAS, 0, _BINS - 1)
    return clipped


def _edge(index: int) -> float:
    if index <= 0:
        return 0.0
    bits = np.array([(index + _BIAS) << _SHIFT], dtype=np.int64)
    return float(bits.view(np.float64)[0])
