"""Distributions as a run reports them: count, mean, extremes, percentiles, and an interval if asked.

Percentiles interpolate linearly between order statistics (position q * (n - 1)), as numpy and the
usual load generators do. A distribution of nothing is `{"count": 0}`: no zeros are made up.
Units are the caller's: `per` converts them (1e6 makes milliseconds of nanoseconds).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4sim.metrics.histogram import LogHistogram

QUANTILES: tuple[tuple[str, float], ...] = (("p50", 0.50), ("p90", 0.90), ("p95", 0.95), ("p99", 0.99))
NS_PER_MS = 1e6
NS_PER_S = 1e9

Dist = dict[str, Any]


def of_histogram(histogram: LogHistogram) -> Dist:
    """The distribution of a histogram of nanoseconds, in milliseconds; percentiles to the width of a bin."""
    count = histogram.count
    if not count:
        return {"count": 0}
    dist: Dist = {
        "count": count,
        "mean": histogram.mean / NS_PER_MS,
        "min": histogram.min / NS_PER_MS,
        "max": histogram.max / NS_PER_MS,
    }
    for name, q in QUANTILES:
        dist[name] = histogram.quantile(q) / NS_PER_MS
    return dist


def quantile_of_sorted(values: NDArray[Any], q: float) -> float:
    """The q-quantile of ascending values, at least one of them."""
    position = q * (len(values) - 1)
    low = int(position)
    high = min(low + 1, len(values) - 1)
    below, above = float(values[low]), float(values[high])
    return below + (above - below) * (position - low)


def of_values(values: NDArray[Any], per: float) -> Dist:
    """The distribution of single observations."""
    return of_sorted(np.sort(values), per)


def of_sorted(values: NDArray[Any], per: float) -> Dist:
    n = len(values)
    if n == 0:
        return {"count": 0}
    dist: Dist = {
        "count": n,
        "mean": float(values.mean()) / per,
        "min": values[0].item() / per,
        "max": values[-1].item() / per,
    }
    for name, q in QUANTILES:
        dist[name] = quantile_of_sorted(values, q) / per
    return dist
