"""Device memory over time: `pools` per rank, and the sampled `series` of a run.

The engine samples when calls are admitted and released. Between samples a value holds; means are over
time, not over samples.
Units: tokens (request slots in the pool named `slots`), seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4sim.metrics.samples import evenly
from v4sim.metrics.window import Window
from v4sim.results import RunResult

# pool -> the series that follows it
FOLLOWED_BY = {"kv": "kv_used", "swa": "swa_used", "slots": "running"}
SAMPLES = 1024


def pool_entries(result: RunResult, window: Window) -> list[dict[str, Any]]:
    """The `pools` entry; the mean is over the window's time, peak and evictions over the whole run."""
    column = {(rank.replica, rank.rank): i for i, rank in enumerate(result.ranks)}
    entries = []
    for pool in result.pools:
        entry = {
            "name": pool.name,
            "replica": pool.replica,
            "rank": pool.rank,
            "capacity_tokens": pool.capacity,
            "peak_tokens": pool.peak,
            "evicted_tokens": pool.evicted,
        }
        used = result.series.get(FOLLOWED_BY.get(pool.name, ""))
        if used is not None:
            mean = time_mean(result.series["t_ns"], used[:, column[pool.replica, pool.rank]], window)
            if mean is not None:
                entry["mean_tokens"] = mean
        entries.append(entry)
    return entries


def time_mean(times_ns: NDArray[np.int64], values: NDArray[np.int64], window: Window) -> float | None:
    """Mean over the window of a value that holds until the next sample and is 0 before the first."""
    if not len(times_ns) or window.length_ns <= 0:
        return None
    until = np.append(times_ns[1:], max(window.end_ns, int(times_ns[-1])))
    inside = np.minimum(until, window.end_ns) - np.maximum(times_ns, window.start_ns)
    return float((np.clip(inside, 0, None) * values.astype(np.float64)).sum() / window.length_ns)


def series_entry(result: RunResult) -> dict[str, Any]:
    """The `series` of result.json: `t_s`, and per name [rank][sample]; at most SAMPLES samples."""
    times = result.series["t_ns"]
    chosen = evenly(len(times), SAMPLES)
    series: dict[str, Any] = {"t_s": times[chosen] / 1e9}
    for name, values in result.series.items():
        if name != "t_ns":
            series[name] = values[chosen].T
    return series
