"""Intervals from the profile's own residual errors: how sure a prediction is, and whether rightly so.

Each draw is one plausible profile (`Profile.draw`) and one seed. The 10th and 90th percentile of the drawn
predictions are the 80 % interval. Calibrated means that the published value lies inside 70 to 90 % of the
time. The interval score (Gneiting and Raftery 2007) is width + 2/alpha x the distance by which the value is
missed, divided by the value: wide intervals win nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from v4sim.backtest.replay import builtin_cost, replay
from v4sim.backtest.schema import Metric, Target

ALPHA = 0.2
Interval = tuple[float, float]


def intervals(target: Target, draws: int) -> dict[str, Interval]:
    """80 % interval of every predictable metric of a target, by metric label."""
    found: dict[str, list[float]] = {}
    for draw in range(draws):
        for prediction in replay(target, cost_of=builtin_cost(draw), seeds=(draw,)).predictions:
            if prediction.predicted is not None:
                found.setdefault(prediction.metric.label, []).append(prediction.predicted)
    return {
        label: (float(np.quantile(values, ALPHA / 2)), float(np.quantile(values, 1 - ALPHA / 2)))
        for label, values in found.items()
    }


def interval_score(value: float, low: float, high: float) -> float:
    missed = max(low - value, 0.0) + max(value - high, 0.0)
    return ((high - low) + 2 / ALPHA * missed) / abs(value)


def calibration(pairs: Sequence[tuple[Metric, Interval]]) -> Mapping[str, Any]:
    """How often the published value lies inside, how wide the intervals are, and their score."""
    if not pairs:
        return {"count": 0, "inside": None, "median_relative_width": None, "median_interval_score": None}
    inside = [low <= metric.value <= high for metric, (low, high) in pairs]
    widths = [(high - low) / abs(metric.value) for metric, (low, high) in pairs]
    scores = [interval_score(metric.value, low, high) for metric, (low, high) in pairs]
    return {
        "count": len(pairs),
        "inside": float(np.mean(inside)),
        "median_relative_width": float(np.median(widths)),
        "median_interval_score": float(np.median(scores)),
    }
