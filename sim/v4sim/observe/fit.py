"""The few engine constants of one deployment, from how its calls differ from their prediction.

    cpu_step_us          host time of a scheduler iteration. It shows in the time per output token where steps
                         are shorter than it (or, without overlap, in all of them): the value at which the
                         median of predicted / seen is one. Where the prediction is already as slow without
                         any, the GPU hides it and nothing can be said.
    cpu_request_us       host time in front of the scheduler, per call and per prompt token: a line through
    cpu_cached_token_us  TTFT seen minus predicted, over the prompt's tokens; outliers weigh less (Huber).
                         Prompts of about one length cannot tell the two apart: all of it goes to the token.

Each value is found by replaying, so queueing that a constant causes is in it. Acceptance is set before.
These constants also take in what the profile gets wrong: GPU time that is missing there is host time here.
Left out: anything else. Units: microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from v4sim.backtest.deploy import constant_rate
from v4sim.config import Deployment, resolve
from v4sim.cost import engine_constants
from v4sim.observe.acceptance import AcceptanceSeen, acceptance_seen
from v4sim.observe.join import Joined
from v4sim.observe.predict import CostOf, Predicted, predict, seen_column

Floats = NDArray[np.float64]
_CLOSE = 0.003  # of the median time per token
_SAME_LENGTH = 0.05  # spread of prompt lengths below which request and token cannot be told apart
_MIN_CALLS = 8
_APPROACH, _AVERAGED = 3, 4  # rounds of the front end
_STEP, _TOKEN, _REQUEST = "cpu_step_us", "cpu_cached_token_us", "cpu_request_us"


@dataclass(frozen=True, slots=True)
class Constant:
    """A fitted constant, or why there is none (`value` is then what the deployment had)."""

    name: str
    value: float
    fitted: bool
    why: str
    calls: int


@dataclass(frozen=True, slots=True)
class Fit:
    """The deployment with what was fitted, and both predictions."""

    deployment: Deployment
    constants: tuple[Constant, ...]
    acceptance: AcceptanceSeen | None
    before: Predicted
    after: Predicted
    replays: int


class _Fitting:
    """Replays with changing constants."""

    def __init__(self, joined: Joined, deployment: Deployment, cost_of: CostOf, seed: int) -> None:
        self.joined, self.deployment = joined, deployment
        self._cost_of, self._seed = cost_of, seed
        self.replays = 0
        known = engine_constants(deployment.engine.kind)
        self.values: dict[str, float] = {}
        for name in (_STEP, _TOKEN, _REQUEST):
            given = getattr(deployment.engine, name)
            self.values[name] = getattr(known, name).value if given is None else given
        self.set_by_hand: set[str] = set()

    def with_values(self) -> Deployment:
        changes = {name: self.values[name] for name in self.set_by_hand}
        engine = self.deployment.engine.model_copy(update=changes)
        return self.deployment.model_copy(update={"engine": engine})

    def predict(self, **changes: float) -> Predicted:
        self.values.update(changes)
        self.set_by_hand |= set(changes)
        self.replays += 1
        return predict(self.joined, self.with_values(), self._cost_of, self._seed)


def fit(joined: Joined, deployment: Deployment, cost_of: CostOf, seed: int = 0) -> Fit:
    """Fit acceptance first, then the step, the front end, and the step again if it was seen."""
    deployment = resolve(deployment)
    accepted = acceptance_seen(joined)
    before = predict(joined, deployment, cost_of, seed)
    if accepted is not None and deployment.speculation.kind != "off":
        rate = constant_rate(accepted.length, deployment.speculation.draft_tokens)
        changed = deployment.speculation.model_copy(update={"acceptance": f"constant:{min(rate, 1.0):.6f}"})
        deployment = deployment.model_copy(update={"speculation": changed})
    fitting = _Fitting(joined, deployment, cost_of, seed)
    step = _fit_step(fitting)
    front = _fit_front(fitting)
    if step.fitted and any(constant.fitted for constant in front):
        step = _fit_step(fitting)
        front = _fit_front(fitting)
    after = fitting.predict()
    return Fit(fitting.with_values(), (step, *front), accepted, before, after, fitting.replays + 1)


def _fit_step(fitting: _Fitting) -> Constant:
    seen = seen_column(fitting.joined, "tpot_s")
    usable = np.isfinite(seen) & (seen > 0)
    was, calls = fitting.values[_STEP], int(usable.sum())
    if calls < _MIN_CALLS:
        return Constant(_STEP, was, False, f"only {calls} calls show their time per output token", calls)

    def difference(value: float) -> float:
        ratio = fitting.predict(**{_STEP: value}).tpot_s[usable] / seen[usable]
        return float(np.nanmedian(np.log(ratio)))

    lowest = difference(0.0)
    if lowest > -_CLOSE:
        kept = fitting.set_by_hand - {_STEP}
        fitting.values[_STEP], fitting.set_by_hand = was, kept
        why = f"hidden: without any, steps are predicted {math.expm1(lowest):+.1%} against those seen"
        return Constant(_STEP, was, False, why, calls)
    high = 1e6 * float(np.nanmedian(seen[usable]))
    while difference(high) < 0:
        high *= 2
    value = _root(difference, 0.0, lowest, high)
    fitting.values[_STEP] = value
    return Constant(_STEP, value, True, "median time per output token", calls)


def _root(difference: Callable[[float], float], low: float, at_low: float, high: float) -> float:
    """Where a rising function is zero, between two points of different sign: bisection with secant steps."""
    at_high = difference(high)
    for number in range(24):
        middle = (low + high) / 2
        if number % 2 == 0 and at_high > at_low:
            middle = low - at_low * (high - low) / (at_high - at_low)
            middle = min(max(middle, low + 0.02 * (high - low)), high - 0.02 * (high - low))
        at = difference(middle)
        if abs(at) < _CLOSE / 3 or high - low < 1e-3 * high:
            return middle
        if at < 0:
            low, at_low = middle, at
        else:
            high, at_high = middle, at
    return (low + high) / 2


def _fit_front(fitting: _Fitting) -> tuple[Constant, Constant]:
    seen = seen_column(fitting.joined, "ttft_s")
    prompts = fitting.joined.table.prompt_tokens.astype(np.float64)
    usable = np.isfinite(seen)
    calls = int(usable.sum())
    if calls < _MIN_CALLS:
        why = f"only {calls} calls show the time from sending to the first token"
        return (
            Constant(_TOKEN, fitting.values[_TOKEN], False, why, calls),
            Constant(_REQUEST, fitting.values[_REQUEST], False, why, calls),
        )
    one_length = float(np.std(prompts[usable])) < _SAME_LENGTH * float(np.mean(prompts[usable]))
    # A call waits for whole steps: less than one shows in how many calls miss a step, not in most of them.
    grain_us = 3e6 * _step_s(fitting)
    found: list[tuple[float, float]] = []
    for _ in range(_APPROACH + _AVERAGED):
        missing_us = 1e6 * (seen - fitting.predict().ttft_s)
        here = usable & np.isfinite(missing_us)
        token, request = fitting.values[_TOKEN], fitting.values[_REQUEST]
        total_us = missing_us[here] + token * prompts[here] + request
        if one_length:
            token = max(float(np.median((total_us - request) / prompts[here])), 0.0)
        else:
            token, request = _line(prompts[here], total_us, grain_us)
        found.append((token, request))
        fitting.values.update({_TOKEN: token, _REQUEST: request})
        fitting.set_by_hand |= {_TOKEN, _REQUEST}
    # Where in a step a call arrives is luck, other luck with every value tried: the last are averaged.
    token, request = (sum(values) / _AVERAGED for values in zip(*found[_APPROACH:], strict=True))
    fitting.values.update({_TOKEN: token, _REQUEST: request})
    why = "TTFT over prompt tokens"
    alone = "prompts are of one length: all of it is on the token"
    return (
        Constant(_TOKEN, fitting.values[_TOKEN], True, alone if one_length else why, calls),
        Constant(_REQUEST, fitting.values[_REQUEST], not one_length, alone if one_length else why, calls),
    )


def _step_s(fitting: _Fitting) -> float:
    """The usual time from one step to the next, as seen."""
    per_token = seen_column(fitting.joined, "tpot_s")
    per_token = per_token[np.isfinite(per_token)]
    accepted = acceptance_seen(fitting.joined)
    width = 1.0 if accepted is None else accepted.length
    return width * float(np.median(per_token)) if len(per_token) else 0.0


def _line(x: Floats, y: Floats, grain: float) -> tuple[float, float]:
    """Slope and intercept, neither below zero; residuals beyond `grain` weigh less (Huber)."""
    weight = np.ones(len(x))
    slope = intercept = 0.0
    for _ in range(30):
        slope, intercept = _weighted(x, y, weight)
        residual = np.abs(y - slope * x - intercept)
        scale = max(1.345 * 1.4826 * float(np.median(residual)), grain, 1e-9)
        weight = np.minimum(1.0, scale / np.maximum(residual, 1e-12))
    return slope, intercept


def _weighted(x: Floats, y: Floats, weight: Floats) -> tuple[float, float]:
    total = weight.sum()
    mean_x, mean_y = float((weight * x).sum() / total), float((weight * y).sum() / total)
    spread = float((weight * (x - mean_x) ** 2).sum())
    slope = float((weight * (x - mean_x) * (y - mean_y)).sum()) / spread if spread > 0 else 0.0
    intercept = mean_y - slope * mean_x
    if intercept < 0:
        slope, intercept = float((weight * x * y).sum() / (weight * x * x).sum()), 0.0
    if slope < 0:
        slope, intercept = 0.0, max(mean_y, 0.0)
    return slope, intercept
