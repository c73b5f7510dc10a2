"""Intervals: how sure a prediction is, and whether rightly so.

Each draw is one plausible world: a profile and engine constants inside their errors (`cost.uncertainty`),
what the source of a target leaves open (acceptance), the workload of another seed, and the noise of a
measurement. The 10th and 90th percentile of the drawn predictions are the 80 % interval. Calibrated means
that the published value lies inside 70 to 90 % of the time. The interval score (Gneiting and Raftery 2007) is
width + 2/alpha x the distance by which the value is missed, divided by the value: wide intervals win nothing.

Noise: where a source publishes several runs of a configuration, the logarithms of their values differ; the
root mean square over all other targets of the project's file, by kind of quantity. Acceptance: published
lengths of V4's draft heads differ by 8 % between data sets and thinking on or off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from v4sim.acceptance import DEFAULT_PHASE, acceptance_table, mean_length
from v4sim.backtest.deploy import constant_rate
from v4sim.backtest.observe import family_of
from v4sim.backtest.replay import builtin_cost, replay
from v4sim.backtest.schema import Metric, Target, read_targets
from v4sim.config import Deployment
from v4sim.cost import engine_constants
from v4sim.cost.uncertainty import factor

ALPHA = 0.2
ACCEPTANCE_LOG_SD = 0.08
Interval = tuple[float, float]


def intervals(target: Target, draws: int) -> dict[str, Interval]:
    """80 % interval of every predictable metric of a target, by metric label."""
    noise = published_noise(target.id)
    found: dict[str, list[float]] = {}
    for draw in range(draws):
        drawn = replay(target, cost_of=builtin_cost(draw), seeds=(draw,), change=drawn_options(draw))
        for prediction in drawn.predictions:
            metric = prediction.metric
            if prediction.predicted is not None:
                log_sd = noise.get(family_of(metric.name) or "", 0.0)
                measured = factor(log_sd, draw, f"noise {target.id} {metric.label}")
                found.setdefault(metric.label, []).append(prediction.predicted * measured)
    return {
        label: (float(np.quantile(values, ALPHA / 2)), float(np.quantile(values, 1 - ALPHA / 2)))
        for label, values in found.items()
    }


def drawn_options(draw: int) -> Callable[[Deployment], Deployment]:
    """A deployment with what its options leave open drawn: host time of a prompt token, acceptance."""

    def change(deployment: Deployment) -> Deployment:
        engine, speculation = deployment.engine, deployment.speculation
        if engine.cpu_cached_token_us is None:
            token_us = engine_constants(engine.kind).draw(draw).cpu_cached_token_us.value
            engine = engine.model_copy(update={"cpu_cached_token_us": token_us})
        if speculation.kind != "off" and speculation.acceptance == "auto":
            drafts = speculation.draft_tokens
            name = "v4-pro-dspark" if speculation.kind == "dspark" else "v4-pro-mtp"
            length = mean_length(acceptance_table(name).rates[DEFAULT_PHASE][:drafts])
            length = min(length * factor(ACCEPTANCE_LOG_SD, draw, "acceptance"), drafts + 1.0)
            rate = constant_rate(max(length, 1.0), drafts)
            speculation = speculation.model_copy(update={"acceptance": f"constant:{rate:.6f}"})
        return deployment.model_copy(update={"engine": engine, "speculation": speculation})

    return change


def published_noise(without: str) -> dict[str, float]:
    """Standard deviation of the logarithm between published runs, by family; `without`: a target left out."""
    squares: dict[str, list[float]] = {}
    for target in read_targets("built-in").targets:
        if target.id == without:
            continue
        for metric in target.metrics:
            runs = sorted((metric.runs or {}).values())
            for a, b in combinations(runs, 2):
                # Two runs differ by the root of two times what one run is off.
                squares.setdefault(family_of(metric.name) or "", []).append(math.log(b / a) ** 2 / 2)
    return {family: math.sqrt(float(np.mean(values))) for family, values in squares.items()}


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
