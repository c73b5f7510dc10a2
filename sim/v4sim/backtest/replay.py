"""The runs of a target: one sub-point at a time, with as many seeds as there is something random.

A seed moves the lengths of requests, the luck of drafts and the choice of front ends together. Where nothing
of that is in play one seed is enough, and is all that is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from v4sim import simulate
from v4sim.backtest.deploy import deploy
from v4sim.backtest.observe import Seen, family_of, observe, ratio_points
from v4sim.backtest.schema import Metric, Target, WorkloadRecord
from v4sim.backtest.workload import Load, at_point, build, is_load
from v4sim.capacity import pools
from v4sim.config import Deployment
from v4sim.cost import compile_cost, load_profile
from v4sim.cost.base import StepCost
from v4sim.cost.profile import Profile
from v4sim.errors import ConfigError, V4Error
from v4sim.model import spec as model_spec

CostOf = Callable[[Deployment], StepCost]
DEFAULT_SEEDS = 3


@dataclass(frozen=True, slots=True)
class Prediction:
    """One metric of one target. `predicted` is None where `reason` says why."""

    metric: Metric
    predicted: float | None
    by_seed: tuple[float, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Replayed:
    """All predictions of a target and what stands behind them."""

    target: Target
    predictions: tuple[Prediction, ...]
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]
    reconstructed: bool = False


def builtin_cost(draw_seed: int | None = None) -> CostOf:
    """Costs from the built-in profile of a deployment's GPU."""
    profiles: dict[str, Profile] = {}

    def cost(deployment: Deployment) -> StepCost:
        name = deployment.hardware.gpu
        if name not in profiles:
            profiles[name] = load_profile(name)
        return compile_cost(profiles[name], deployment, model_spec(deployment.model.name), draw_seed)

    return cost


def replay(
    target: Target,
    *,
    cost_of: CostOf | None = None,
    seeds: Sequence[int] = tuple(range(DEFAULT_SEEDS)),
    change: Callable[[Deployment], Deployment] | None = None,
) -> Replayed:
    """Predict every metric of a target. Raises `V4Error` with the reason where it cannot be run."""
    cost_of = cost_of or builtin_cost()
    limit = model_spec(target.model).max_context_tokens
    limit = min(limit, target.workload.max_model_len or limit)
    points, loads, failed = _points(target, limit, seeds[0])
    longest = max((load.longest_tokens for load in loads.values()), default=0)
    deployed = deploy(target, longest)
    deployment = change(deployed.deployment) if change else deployed.deployment
    cost = cost_of(deployment)
    held = pools(deployment, model_spec(target.model))
    seen: dict[str, list[Seen]] = {}
    for key, load in loads.items():
        random = load.random or load.repetitions > 1 or deployment.speculation.kind != "off"
        random = random or deployment.router.policy == "front_ends"
        seen[key] = []
        for seed in seeds if random else seeds[:1]:
            mine = load if seed == seeds[0] else build(points[key], limit, seed)
            results = tuple(
                simulate.run(
                    mine.table, deployment, cost, mine.options, seed=seed * 1000 + repetition, pools=held
                )
                for repetition in range(mine.repetitions)
            )
            seen[key].append(Seen(mine, results, deployment, held))
    for key in points:
        seen.setdefault(key, [Seen(None, (), deployment, held)])
    predictions = tuple(_predict(metric, seen, failed) for metric in target.metrics)
    assumed = [*deployed.assumed, *(note for load in loads.values() for note in load.notes)]
    assumed += [f"nothing for the key {key!r}" for key in target.unread_keys]
    return Replayed(
        target,
        predictions,
        tuple(dict.fromkeys(assumed)),
        tuple(cost.domain_warnings()),
        any(load.reconstructed for load in loads.values()),
    )


def _key(metric: Metric) -> str:
    return repr(sorted((metric.at or {}).items()))


def _points(
    target: Target, limit: int, seed: int
) -> tuple[dict[str, WorkloadRecord], dict[str, Load], dict[str, str]]:
    """The workload of each sub-point that a metric is published at, its calls, and why a point has none.

    Raises the reason where no point can be sent and no metric does without.
    """
    points: dict[str, WorkloadRecord] = {}
    loads: dict[str, Load] = {}
    failed: dict[str, str] = {}
    for metric in target.metrics:
        key = _key(metric)
        if ratio_points(metric.name) is not None or key in points or key in failed:
            continue
        try:
            work = at_point(target, metric.at)
            if is_load(work):
                loads[key] = build(work, limit, seed)
            points[key] = work
        except V4Error as error:
            failed[key] = str(error)
    if failed and not loads and not any(family_of(m.name) == "capacity" for m in target.metrics):
        raise ConfigError(next(iter(failed.values())))
    if not points:
        points[_key(target.metrics[0])] = target.workload
    return points, loads, failed


def _predict(metric: Metric, seen: dict[str, list[Seen]], failed: dict[str, str]) -> Prediction:
    family = family_of(metric.name)
    if family is None:
        return Prediction(metric, None, reason=f"nothing here predicts {metric.name!r}")
    key = _key(metric)
    if key in failed and family != "capacity":
        return Prediction(metric, None, reason=failed[key])
    try:
        ratio = ratio_points(metric.name)
        if ratio is None:
            runs = seen.get(key) or next(iter(seen.values()))
            values = [observe(metric.name, metric.stat, one) for one in runs]
        else:
            name, above, below = ratio
            numerator, denominator = (_nearest(size, seen) for size in (above, below))
            values = [
                observe(name, metric.stat, a) / observe(name, metric.stat, b)
                for a, b in zip(numerator, denominator, strict=True)
            ]
    except V4Error as error:
        return Prediction(metric, None, reason=str(error))
    return Prediction(metric, float(np.mean(values)), tuple(values))


def _nearest(size: float, seen: dict[str, list[Seen]]) -> list[Seen]:
    """The runs whose context is nearest to a label such as 4k (4,000 or 4,096 tokens)."""

    def distance(runs: list[Seen]) -> float:
        load = runs[0].load
        return abs(int(load.table.prompt_tokens.max()) - size) if load is not None else float("inf")

    return min(seen.values(), key=distance)
