"""A target to change, and a deployment without host time, so that times can be computed by hand."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from v4sim.backtest.replay import Replayed, replay
from v4sim.backtest.schema import Target, parse_targets
from v4sim.config import Deployment
from v4sim.cost.base import ConstantCost

_TARGET: dict[str, Any] = {
    "id": "hand",
    "model": "v4-flash",
    "engine": "vllm 0.29.0",
    "gpu": "b200",
    "num_gpus": 4,
    "topology": {"attention": "tp4", "tp": 4, "dp": 1, "ep": 1, "replicas": 1},
    "weights": "fp4",
    "index_dtype": "unknown",
    "workload": {"kind": "closed_loop_fixed", "isl": 1000, "osl": 11, "concurrency": 1, "num_requests": 4},
    "metrics": [{"name": "ttft_ms", "stat": "p50", "value": 10, "low": 10, "high": 10}],
}
STEP_S = 0.010


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = _merged(found[key], value) if nested else value
    return found


@pytest.fixture(scope="session")
def entry() -> Callable[..., dict[str, Any]]:
    """The hand-made target as JSON data, with changes merged in."""
    return lambda **changes: _merged(_TARGET, changes)


@pytest.fixture(scope="session")
def target(entry: Callable[..., dict[str, Any]]) -> Callable[..., Target]:
    def make(**changes: Any) -> Target:
        file = parse_targets(json.dumps({"schema": 1, "targets": [entry(**changes)]}), "hand.json")
        assert file.refused == ()
        return file.targets[0]

    return make


@pytest.fixture(scope="session")
def metrics() -> Callable[..., list[dict[str, Any]]]:
    """Metrics from (name, stat) or (name, stat, at) with any value."""

    def make(*wanted: tuple[Any, ...]) -> list[dict[str, Any]]:
        found = []
        for name, stat, *at in wanted:
            found.append({"name": name, "stat": stat, "value": 1, "low": 1, "high": 1})
            if at:
                found[-1]["at"] = at[0]
        return found

    return make


@pytest.fixture(scope="session")
def predict() -> Callable[..., dict[str, float | None]]:
    """Predictions by label with a step of 10 ms and no host time."""

    def without_host(deployment: Deployment) -> Deployment:
        engine = deployment.engine.model_copy(update={"cpu_cached_token_us": 0.0, "cpu_request_us": 0.0})
        return deployment.model_copy(update={"engine": engine})

    def go(target: Target, seeds: int = 1, **cost: float) -> dict[str, float | None]:
        found: Replayed = replay(
            target,
            cost_of=lambda deployment: ConstantCost(STEP_S, **cost),
            seeds=range(seeds),
            change=without_host,
        )
        return {p.metric.label: p.predicted for p in found.predictions}

    return go
