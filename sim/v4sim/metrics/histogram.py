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


# What a histogram holds, by its used bins: bins, their counts, sum, least and most value (-1: none).
Used = tuple[NDArray[np.int16], NDArray[np.int64], int, int, int]
Weighted = list[tuple[NDArray[np.int64], "NDArray[np.int64] | int"]]  # values and how often each counts
NOTHING: Used = np.zeros(0, dtype=np.int16), np.zeros(0, dtype=np.int64), 0, -1, 0


def tally(weighted: Weighted) -> Used:
    """Bin all values with their weights; those of weight 0 are not there."""
    values = np.concatenate([values for values, _ in weighted])
    if all(isinstance(weight, int) and weight == 1 for _, weight in weighted):
        counted = values
    else:
        weights = _weights(weighted)
        if not weights.all():
            there = weights > 0
            values, weights = values[there], weights[there]
        counted = values * weights
    if not values.size:
        return NOTHING
    bins = _bins(values)
    lowest = int(bins.min())
    bins -= lowest
    counts = np.bincount(bins) if counted is values else np.bincount(bins, weights=weights).astype(np.int64)
    used = counts.nonzero()[0]
    return (
        (used + lowest).astype(np.int16),
        counts[used],
        int(counted.sum()),
        int(values.min()),
        int(values.max()),
    )


def _weights(weighted: Weighted) -> NDArray[np.int64]:
    """The weight of every value, those of one array after those of another."""
    alike = [weight for _, weight in weighted if isinstance(weight, int)]
    if not alike:
        return np.concatenate([weight for _, weight in weighted])
    if len(alike) == len(weighted):
        return np.repeat(np.array(alike, dtype=np.int64), [values.size for values, _ in weighted])
    return np.concatenate([_weights([one]) for one in weighted])


class LogHistogram:
    """Weighted distribution of non-negative integers; bins at most 0.8 % wide."""

    def __init__(self) -> None:
        self.counts: NDArray[np.int64] = np.zeros(_BINS, dtype=np.int64)
        self._total_ns = 0
        self._min = -1
        self._max = 0
        self._waiting: Weighted = []  # not counted yet
        self._size = 0

    def add(self, values_ns: NDArray[np.int64], weights: NDArray[np.int64] | int = 1) -> None:
        """Count each value with its weight; the arrays are kept until the next flush."""
        if values_ns.size:
            self._waiting.append((values_ns, weights))
            self._size += values_ns.size
        if self._size >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        if self._size:
            self.absorb(tally(self._waiting))
            self._waiting.clear()
            self._size = 0

    def absorb(self, used: Used) -> None:
        """Add what another histogram holds."""
        bins, counts, total, least, most = used
        if least < 0:
            return
        self.counts[bins] += counts
        self._total_ns += total
        self._min = least if self._min < 0 else min(self._min, least)
        self._max = max(self._max, most)

    def used(self) -> Used:
        """What it holds, by its used bins."""
        self.flush()
        bins = self.counts.nonzero()[0]
        return bins.astype(np.int16), self.counts[bins], self._total_ns, self._min, self._max

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
