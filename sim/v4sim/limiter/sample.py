"""The calls that a figure is of, in one draw of the workload, and how a run did on them.

Everything a study compares goes through here: a `Reading` is the figure over the calls of a sample in one
run, and for each resample of the sessions. Readings of one sample resample the same sessions in the
same way, so their differences are paired. Sessions are numbered by the trace, so that they are also the same
between samples of different draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from v4sim.errors import ConfigError
from v4sim.limiter.objective import Floats, Objective
from v4sim.metrics.bootstrap import FEWEST_UNITS, SessionBootstrap
from v4sim.metrics.calls import Bools, Calls, Int64s
from v4sim.metrics.dist import quantile_of_sorted
from v4sim.metrics.window import FULL_ENOUGH, steady_window

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.results import RunResult
    from v4sim.scenario import Scenario

P95 = 0.95


@dataclass(frozen=True, slots=True)
class Reading:
    """The figure, and of each resample; no `draws` for few sessions or calls that were not served."""

    value: float
    draws: Floats | None


@dataclass(frozen=True, slots=True)
class Sample:
    """Trace rows and copies of the calls that the unchanged run sent in its steady window."""

    objective: Objective
    deployment: Deployment  # whose objectives say what good means
    rows: Int64s
    copies: Int64s
    bootstrap: SessionBootstrap | None

    @classmethod
    def of(cls, scenario: Scenario, base: RunResult, objective: Objective) -> Sample:
        """Raises ConfigError where no call has the figure."""
        table, deployment = scenario.table, scenario.deployment
        calls = Calls.of(base.calls)
        window = steady_window(calls, table, base.end_ns, base.alive_target, scenario.workload.window)
        concerned = objective.concerns(table, calls["row"], deployment.engine.page_tokens)
        chosen = np.flatnonzero(window.holds(calls["sent_ns"]) & concerned)
        if not chosen.size:
            raise ConfigError(
                f"no call in the steady window has a {objective.name} ({objective.says}): choose another "
                "objective, or a wider window with --window."
            )
        rows = calls["row"][chosen]
        tasks = table.task_of_row().astype(np.int64)
        units = tasks[rows]
        enough = len(np.unique(units)) >= FEWEST_UNITS
        bootstrap = SessionBootstrap.over(units, int(tasks.max()) + 1, scenario.seed) if enough else None
        return cls(objective, deployment, rows, calls["instance"][chosen], bootstrap)

    def read(self, result: RunResult) -> Reading:
        calls = Calls.of(result.calls)
        at = calls.find(self.rows, self.copies)
        there = np.flatnonzero(at >= 0)
        found = np.full(len(self.rows), np.inf if self.objective.is_time else 0.0)
        found[there] = self.objective.of_call(calls, self.deployment)[at[there]]
        span_s = 0.0
        if self.objective.figure == "rate":
            in_time, span_s = _most(calls, at[there], len(found))
            found[there] *= in_time
        usable = self.bootstrap is not None and np.isfinite(found).all()
        return Reading(self._figure(found, span_s), self._draws(found, span_s) if usable else None)

    def _figure(self, found: Floats, span_s: float) -> float:
        if self.objective.figure == "p95":
            # Between two calls that were not served nothing can be interpolated.
            served = bool(np.isfinite(found).all())
            return quantile_of_sorted(np.sort(found), P95) if served else _higher_p95(found)
        return float(found.sum()) / (len(found) if self.objective.figure == "mean" else max(span_s, 1e-9))

    def _draws(self, found: Floats, span_s: float) -> Floats:
        assert self.bootstrap is not None
        if self.objective.figure == "p95":
            order = np.argsort(found, kind="stable")
            (draws,) = self.bootstrap.quantile_draws(found[order], order, (P95,))
            return draws
        sums = self.bootstrap.sums(found)
        if self.objective.figure == "rate":
            return np.asarray(sums / max(span_s, 1e-9))
        counts = self.bootstrap.sums(np.ones(len(found)))
        return np.where(counts > 0, sums / np.maximum(counts, 1.0), np.nan)


def _higher_p95(found: Floats) -> float:
    return float(np.quantile(found, P95, method="higher"))


def _most(calls: Calls, chosen: Int64s, of_all: int) -> tuple[Bools, float]:
    """Which of these calls end before nine tenths `of_all` have, and the seconds since the first was sent.

    What the last tenth takes is drain: one long call at the end would decide the rate of all. Where fewer
    have ended, it is all that did.
    """
    ends = calls["last_token_ns"][chosen]
    ended = calls.completed[chosen]
    if not ended.any():
        return ended, 0.0
    in_order = np.sort(ends[ended])
    upto = in_order[min(ceil(FULL_ENOUGH * of_all), len(in_order)) - 1]
    return ended & (ends <= upto), float(upto - calls["sent_ns"][chosen].min()) / 1e9
