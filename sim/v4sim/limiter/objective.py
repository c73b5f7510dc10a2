"""What "better" means: one figure of a run, over calls that are the same in every run.

A figure is read off the calls that the unchanged run sent in its steady window, found again in each other
run by trace row and copy. So runs compare call by call, and a window that moves does not move the figure.
Which calls are warm is the trace's word (they append to their session), not a run's: a prefix that a run
lost must not drop out of the figure.

A call that a run did not serve has no time; it counts as slower than every other. Rates are of the same
work, without its drain: the calls that end until nine tenths have, over the time since the first was sent.
Units: milliseconds; calls per second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from v4sim.errors import ConfigError
from v4sim.eventclass import CODE, classify
from v4sim.metrics.calls import Bools, Calls, Int64s

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4traces import TraceTable

Floats = NDArray[np.float64]
Figure = Literal["p95", "mean", "rate"]
WARM = ("warm", "resume_tool", "resume_user")
NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Objective:
    """A figure to improve: the p95 or the mean of a time of each call, or the rate of calls that count
    (`of_call` 1 or 0)."""

    name: str
    says: str
    unit: str
    of_call: Callable[[Calls, Deployment], Floats]
    figure: Figure
    warm_only: bool = False
    several_tokens: bool = False  # only calls of more than one output token have the figure

    @property
    def is_time(self) -> bool:
        """Less is better; of a rate, more is."""
        return self.figure != "rate"

    def concerns(self, table: TraceTable, rows: Int64s, page_tokens: int) -> Bools:
        """Which calls of these trace rows the figure is about, whatever became of them."""
        chosen = np.ones(len(rows), dtype=np.bool_)
        if self.warm_only:
            warm = np.isin(classify(table, page_tokens), [CODE[name] for name in WARM])
            chosen &= warm[rows]
        if self.several_tokens:
            chosen &= table.output_tokens[rows] > 1
        return chosen


def objective(name: str) -> Objective:
    for known in OBJECTIVES:
        if known.name == name:
            return known
    choices = "; ".join(f"{known.name} ({known.says})" for known in OBJECTIVES)
    raise ConfigError(f"{name!r} is not an objective; choose one of: {choices}.")


def _ttft(calls: Calls, deployment: Deployment) -> Floats:
    return _ms(calls["first_seen_ns"] - calls["sent_ns"], calls["first_seen_ns"] >= 0)


def _e2e(calls: Calls, deployment: Deployment) -> Floats:
    return _ms(calls["last_token_ns"] - calls["sent_ns"], calls.completed)


def _tpot(calls: Calls, deployment: Deployment) -> Floats:
    gaps = np.maximum(calls["output_tokens"] - 1, 1)
    decode_ns = np.maximum(calls["last_token_ns"] - calls["first_seen_ns"], 0)
    return _ms(decode_ns / gaps, calls.completed)


def _ms(time_ns: NDArray[np.int64] | Floats, served: Bools) -> Floats:
    return np.where(served, time_ns / NS_PER_MS, np.inf)


def _good(calls: Calls, deployment: Deployment) -> Floats:
    """Served within the first-token objective and, per token on average, within the inter-token one."""
    wanted = deployment.objective
    in_time = _ttft(calls, deployment) <= wanted.ttft_p95_s * 1e3
    return (in_time & (_tpot(calls, deployment) <= wanted.itl_p95_ms)).astype(np.float64)


def _done(calls: Calls, deployment: Deployment) -> Floats:
    return calls.completed.astype(np.float64)


OBJECTIVES: tuple[Objective, ...] = (
    Objective(
        "ttft_warm_p95", "p95 time to first token of calls that append", "ms", _ttft, "p95", warm_only=True
    ),
    Objective(
        "ttft_warm_mean", "mean time to first token of calls that append", "ms", _ttft, "mean", warm_only=True
    ),
    Objective("ttft_p95", "p95 time to first token, all calls", "ms", _ttft, "p95"),
    Objective("tpot_p95", "p95 time per output token of a call", "ms", _tpot, "p95", several_tokens=True),
    Objective("e2e_p95", "p95 time of a whole call", "ms", _e2e, "p95"),
    Objective("goodput", "calls per second that meet both objectives", "calls/s", _good, "rate"),
    Objective("throughput", "completed calls per second", "calls/s", _done, "rate"),
)
