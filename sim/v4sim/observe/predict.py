"""What a deployment is predicted to do with the calls that were seen, call by call.

The seen part of the trace is replayed at the moments of the log. Units: seconds; NaN: a call did not end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from v4sim import simulate
from v4sim.config import Deployment
from v4sim.cost.base import StepCost
from v4sim.metrics.calls import Calls
from v4sim.observe.join import Joined
from v4sim.workload import WorkloadOptions

Floats = NDArray[np.float64]
CostOf = Callable[[Deployment], StepCost]


@dataclass(frozen=True, slots=True)
class Predicted:
    """One entry a row of the joined trace."""

    ttft_s: Floats
    engine_ttft_s: Floats
    e2e_s: Floats
    tpot_s: Floats  # NaN for a single token
    cached_tokens: NDArray[np.int64]


def predict(joined: Joined, deployment: Deployment, cost_of: CostOf, seed: int) -> Predicted:
    options = WorkloadOptions(arrivals="trace")
    result = simulate.run(joined.table, deployment, cost_of(deployment), options, seed=seed)
    calls = Calls.of(result.calls)
    order = np.argsort(calls["row"], kind="stable")
    moments = ("sent_ns", "first_token_ns", "first_seen_ns", "last_token_ns")
    sent, first, seen, last = (calls[name][order] for name in moments)
    last = np.maximum(last, seen)
    queued, outputs = calls["queued_ns"][order], calls["output_tokens"][order]
    ended = calls.completed[order]

    def seconds(ns: NDArray[np.int64], defined: NDArray[np.bool_]) -> Floats:
        return np.where(defined, ns / 1e9, np.nan)

    several = ended & (outputs > 1)
    return Predicted(
        ttft_s=seconds(seen - sent, ended),
        engine_ttft_s=seconds(first - queued, ended),
        e2e_s=seconds(last - sent, ended),
        tpot_s=seconds(last - seen, several) / np.maximum(outputs - 1, 1),
        cached_tokens=calls.hits_all_tiers[order],
    )


def seen_column(joined: Joined, name: str) -> Floats:
    """A column of the calls seen; NaN where the log does not say."""
    values = [getattr(call, name) for call in joined.seen]
    return np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)
