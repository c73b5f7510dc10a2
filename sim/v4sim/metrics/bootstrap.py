"""Intervals by resampling whole sessions, because calls of one session are not independent.

A session with its sub-agents (a task) is the unit that is drawn with replacement; its calls come along.
80 % percentile intervals from 200 resamples. To stay cheap at a million calls, tasks are dealt into at
most 64 groups that are drawn as wholes, and values are counted in at most 256 bins of equal count:
with fewer values than bins every bin is one value and the resampled percentile is exact. All resamples
look for their percentile together, by bisection over the bins, in whole numbers.

Leaves out: the error of the profile (see `Profile.draw`) and the choice of trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4sim.metrics.calls import Int64s

RESAMPLES = 200
GROUPS = 64
BINS = 256
COVERAGE = 0.80
# Fewer units than this say nothing about their spread; the interval is left out.
FEWEST_UNITS = 8

Interval = list[float]


@dataclass(frozen=True, slots=True)
class SessionBootstrap:
    """How often each group occurs in each resample, and the group of every call."""

    group_of_call: Int64s
    draws: Int64s  # [resamples, groups]

    @classmethod
    def over(cls, unit_of_call: Int64s, units: int, seed: int) -> SessionBootstrap | None:
        """None when there are too few units. Units are numbered 0..units-1 in order of appearance."""
        if units < FEWEST_UNITS:
            return None
        groups = min(units, GROUPS)
        rng = np.random.default_rng([seed, 0xB0075])
        draws = rng.multinomial(groups, np.full(groups, 1.0 / groups), size=RESAMPLES)
        return cls(unit_of_call % groups, draws.astype(np.int64))

    @property
    def groups(self) -> int:
        return int(self.draws.shape[1])

    def quantiles(self, ascending: NDArray[Any], calls: Int64s, qs: tuple[float, ...]) -> list[Interval]:
        """Intervals of quantiles of `ascending`, whose entry i belongs to call `calls[i]`."""
        found = self.quantile_draws(ascending, calls, qs)
        return [percentile_interval(draws[np.isfinite(draws)]) for draws in found]

    def quantile_draws(
        self, ascending: NDArray[Any], calls: Int64s, qs: tuple[float, ...]
    ) -> list[NDArray[np.float64]]:
        """The quantile of each resample; NaN for one that has none of these calls."""
        n = len(ascending)
        bins = min(n, BINS)
        bin_of = np.arange(n, dtype=np.int64) * bins // n
        cell = self.group_of_call[calls] * bins + bin_of
        counts = np.bincount(cell, minlength=self.groups * bins).reshape(self.groups, bins)
        upto = np.cumsum(counts, axis=1)  # values of a group in a bin or below it
        totals = self._drawn(upto, np.full(RESAMPLES, bins - 1))
        edges = np.searchsorted(bin_of, np.arange(bins + 1))
        middle = ascending[(edges[:-1] + edges[1:] - 1) // 2]
        drawn_any = totals > 0
        return [middle[self._crossing(upto, q * (totals - 1))[drawn_any]].astype(np.float64) for q in qs]

    def _drawn(self, upto: Int64s, bins: Int64s) -> Int64s:
        """Per resample, the values in its bin or below it."""
        return np.asarray((self.draws * upto[:, bins].T).sum(axis=1))

    def _crossing(self, upto: Int64s, ranks: NDArray[Any]) -> Int64s:
        """Per resample, the first bin with more than `ranks` values in it or below it."""
        low, high = np.zeros(RESAMPLES, dtype=np.int64), np.full(RESAMPLES, upto.shape[1] - 1)
        while (low < high).any():
            half = (low + high) // 2
            enough = self._drawn(upto, half) > ranks
            high = np.where(enough, half, high)
            low = np.where(enough, low, np.minimum(half + 1, high))
        return low

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of each resample; one entry per call."""
        by_group = np.bincount(self.group_of_call, weights=values, minlength=self.groups)
        return np.asarray((self.draws * by_group).sum(axis=1))

    def ratio(self, numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> Interval | None:
        """Interval of sum(numerator) / sum(denominator); one entry per call."""
        sums = [self.sums(part) for part in (numerator, denominator)]
        usable = sums[1] > 0
        return percentile_interval(sums[0][usable] / sums[1][usable]) if usable.any() else None


def percentile_interval(estimates: NDArray[np.float64]) -> Interval:
    tail = (1.0 - COVERAGE) / 2.0
    low, high = np.quantile(estimates, [tail, 1.0 - tail])
    return [float(low), float(high)]
