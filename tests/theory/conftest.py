"""One rank with one request slot is a single-server queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from v4sim.cost.base import ConstantCost
from v4sim.results import RunResult
from v4traces import CallRow

Ns = NDArray[np.int64]
NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Served:
    """Times of all calls in nanoseconds, by order of arrival."""

    result: RunResult
    arrive: Ns
    start: Ns
    end: Ns

    @property
    def wait_s(self) -> NDArray[np.float64]:
        return (self.start - self.arrive) / NS

    @property
    def sojourn_s(self) -> NDArray[np.float64]:
        return (self.end - self.arrive) / NS


def of(result: RunResult) -> Served:
    calls = result.calls
    assert set(calls["done"]) == {"completed"}
    columns = (np.asarray(calls[name]) for name in ("queued_ns", "admit_ns", "last_token_ns"))
    return Served(result, *columns)


@pytest.fixture(scope="session")
def single_server(simulate_rows: Callable[..., RunResult]) -> Callable[..., Served]:
    """Calls at these times whose whole service is one prefill step of `tokens` microseconds.

    What the engine adds to the textbook is switched off: overlap would make results late by one
    step, chunks would cut a prompt into steps, a prefix cache would shorten it.
    """

    def go(arrivals_s: Sequence[float], tokens: Sequence[int], **options: Any) -> Served:
        rows = [
            CallRow(session_id=f"s{i}", turn=0, arrival_s=at, prompt_tokens=int(n), output_tokens=1)
            for i, (at, n) in enumerate(zip(arrivals_s, tokens, strict=True))
        ]
        sets = [
            "engine.overlap=false",
            "engine.chunked_prefill_tokens=-1",
            "engine.prefix_cache=false",
            *options.pop("sets", ()),
        ]
        options = {"cost": ConstantCost(0.0, 0.0, 1e-6), "slots": 1, "kv_tokens": 1 << 22} | options
        return of(simulate_rows(rows, sets=sets, **options))

    return go


@pytest.fixture(scope="session")
def served() -> Callable[[RunResult], Served]:
    return of
