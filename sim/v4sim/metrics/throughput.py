"""Work per second inside a window.

Requests and prompt tokens count where the last and the first token fall. The output tokens of a call are
spread evenly between its first and last token (the first one sits at its own moment), so that a window's
share of a long answer is counted and the shares of adjoining windows add up to the whole.
Peak = the busiest of equal bins that tile the window (about a second each, at most 4096); their sum is the
mean, so it cannot lie below the mean, as it does where peak counts chunks and mean
counts tokens.

Leaves out: the exact moment of each token (the engine keeps no per-token record).
Units: per second of simulated time; `_per_gpu` divides by the GPUs of the deployment.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from v4sim.metrics.calls import Calls, Int64s
from v4sim.metrics.window import Window

BIN_S = 1.0
MOST_BINS = 4096


def throughput(calls: Calls, window: Window, gpus: int) -> dict[str, float]:
    """The `throughput` entry; empty for a window of no length."""
    seconds = window.length_ns / 1e9
    if seconds <= 0.0:
        return {}
    bins = int(min(max(round(seconds / BIN_S), 1), MOST_BINS))
    produced = output_tokens_by_bin(calls, window, bins)
    output = float(produced.sum())
    done = calls.completed & window.holds(calls["last_token_ns"])
    prompt = int(calls["prompt_tokens"][window.holds(calls["first_token_ns"])].sum())
    return {
        "requests_per_s": int(done.sum()) / seconds,
        "output_tokens_per_s": output / seconds,
        "total_tokens_per_s": (output + prompt) / seconds,
        "output_tokens_per_s_per_gpu": output / seconds / gpus,
        "total_tokens_per_s_per_gpu": (output + prompt) / seconds / gpus,
        "peak_output_tokens_per_s": max(float(produced.max()) * bins, output) / seconds,
        "peak_bin_s": seconds / bins,
    }


def output_tokens_by_bin(calls: Calls, window: Window, bins: int) -> NDArray[np.float64]:
    """Output tokens of completed calls in each of `bins` equal parts of the window."""
    done = calls.completed & (calls["output_tokens"] > 0)
    first, last = calls["first_token_ns"][done], calls["last_token_ns"][done]
    count = calls["output_tokens"][done]
    at_once = first >= last
    jumps = np.where(at_once, count, 1)
    inside = window.holds(first)
    width = window.length_ns / bins
    place = np.minimum((first[inside] - window.start_ns) / width, bins - 1).astype(np.int64)
    produced = np.bincount(place, weights=jumps[inside], minlength=bins).astype(np.float64)
    spread = ~at_once & (first < window.end_ns) & (last > window.start_ns)
    if spread.any():
        rate = (count[spread] - 1) / (last[spread] - first[spread])
        begin = np.maximum(first[spread], window.start_ns) - window.start_ns
        end = np.minimum(last[spread], window.end_ns) - window.start_ns
        produced += _spread(rate, begin, end, width, bins)
    return produced


def _spread(
    rate: NDArray[np.float64], begin: Int64s, end: Int64s, width: float, bins: int
) -> NDArray[np.float64]:
    """Sum of the constant rates over their spans [begin, end], per bin of `width`.

    A span inside one bin adds to that bin alone, so that a short, fast call leaves no rounding error in the
    bins after it, as a running sum of rates would.
    """
    low = np.minimum(begin / width, bins - 1).astype(np.int64)
    high = np.minimum(end / width, bins - 1).astype(np.int64)
    head = np.where(high > low, (low + 1) * width, end) - begin
    produced = np.bincount(low, weights=rate * head, minlength=bins)
    longer = high > low
    low, high, rate, end = low[longer], high[longer], rate[longer], end[longer]
    produced += np.bincount(high, weights=rate * (end - high * width), minlength=bins)
    # Whole bins between: a step up after the first, a step down at the last.
    steps = np.bincount(low + 1, weights=rate * width, minlength=bins + 1)
    steps -= np.bincount(high, weights=rate * width, minlength=bins + 1)
    return np.asarray(produced + np.cumsum(steps)[:bins], dtype=np.float64)
