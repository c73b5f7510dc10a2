"""What a prediction is worth: its distance from the published range, what counts, and summaries.

The error of a metric is signed and relative, zero inside [low, high] and counted from the nearest edge
outside; the distance from the headline value stands beside it. A (target, quantity) is scored once. Shown
and not scored: min-max statistics, second-hand sources, derived numbers, a second central statistic or the
reciprocal of a scored one, targets that share their source with an engine constant (`fit`). A target whose
trace had to be reconstructed is summarised apart. Errors are fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from v4sim.backtest.observe import family_of
from v4sim.backtest.replay import Prediction, Replayed
from v4sim.backtest.schema import Metric, Refusal, Target, TargetFile
from v4sim.cost.engine_constants import engine_constants

SCORED, RECONSTRUCTED, FIT = "scored", "workload reconstructed", "fit"
_CENTRAL = ("p50", "median", "mean", "avg", "average", "boot log", "ratio")


@dataclass(frozen=True, slots=True)
class Row:
    """One published number beside its prediction. `status` says whether it counts, or why not."""

    target: Target
    metric: Metric
    family: str
    status: str
    predicted: float | None
    by_seed: tuple[float, ...] = ()
    reason: str = ""
    without_source: float | None = None  # prediction with the constant that shares the source left out

    @property
    def error(self) -> float | None:
        return range_error(self.predicted, self.metric)

    @property
    def inside(self) -> bool:
        return self.error == 0.0

    @property
    def scored(self) -> bool:
        return self.status == SCORED

    @property
    def counts(self) -> bool:
        """Whether it belongs to the score, predicted or not."""
        return self.status in (SCORED, "refused")


def range_error(predicted: float | None, metric: Metric) -> float | None:
    """Signed distance from the nearest edge of the published range, as a share of that edge."""
    if predicted is None:
        return None
    edge = min(max(predicted, metric.low), metric.high)
    if edge == 0.0:
        return 0.0 if predicted == 0.0 else float("inf")
    return (predicted - edge) / abs(edge)


def shared_source(target: Target) -> str | None:
    """The engine constant that was read from the campaign of this target, if any."""
    kind = target.engine_kind
    if kind not in ("sglang", "vllm"):
        return None
    constants = engine_constants(kind)
    for name in constants.__slots__:
        if target.id in getattr(constants, name).shared_targets:
            return str(name)
    return None


def rows_of(replayed: Replayed, without_source: Replayed | None = None) -> list[Row]:
    """The rows of one target in the order of its metrics."""
    target = replayed.target
    lone = {} if without_source is None else {p.metric.label: p.predicted for p in without_source.predictions}
    seen: set[tuple[str, str, str]] = set()
    rows = []
    for prediction in replayed.predictions:
        status = _status(replayed, prediction, seen)
        metric = prediction.metric
        rows.append(
            Row(
                target,
                metric,
                family_of(metric.name) or "other",
                status,
                prediction.predicted,
                prediction.by_seed,
                prediction.reason,
                lone.get(metric.label),
            )
        )
    return rows


def refused_rows(target: Target, reason: str) -> list[Row]:
    """Rows of a target that could not be run: they count as not covered, unless they would not be scored."""
    empty = Replayed(target, tuple(Prediction(m, None, reason=reason) for m in target.metrics), (), ())
    return rows_of(empty)


def _status(replayed: Replayed, prediction: Prediction, seen: set[tuple[str, str, str]]) -> str:
    target, metric = replayed.target, prediction.metric
    if target.second_hand:
        return "second-hand"
    if metric.stat == "min-max":
        return "min-max"
    if metric.derived:
        return "derived"
    stat = "central" if metric.stat in _CENTRAL else metric.stat
    key = (family_of(metric.name) or metric.name, stat, repr(sorted((metric.at or {}).items())))
    if key in seen:
        return "second form of a scored quantity"
    seen.add(key)
    if shared_source(target) is not None:
        return FIT
    if replayed.reconstructed:
        return RECONSTRUCTED
    return SCORED if prediction.predicted is not None else "refused"


def summary(rows: Sequence[Row], file: TargetFile, refused: Sequence[Refusal]) -> dict[str, Any]:
    """The score, overall and by metric, engine, GPU and model; reconstructed and fit rows apart."""
    scored = [row for row in rows if row.counts]
    groups: dict[str, Callable[[Row], str]] = {
        "metric": lambda row: row.family,
        "engine": lambda row: row.target.engine_kind,
        "gpu": lambda row: row.target.gpu,
        "model": lambda row: row.target.model,
    }
    found = figures(scored)
    unread = sum(refusal.metrics for refusal in file.refused)
    total = found["count"] + unread
    found["coverage"] = found["predicted"] / total if total else None
    found["targets"] = {
        "total": len(file.targets) + len(file.refused),
        "run": len(file.targets) - sum(1 for r in refused if r not in file.refused),
        "refused": len(refused),
    }
    for name, of in groups.items():
        labels = sorted({of(row) for row in scored})
        found[f"by_{name}"] = {label: figures([r for r in scored if of(r) == label]) for label in labels}
    found["workload_reconstructed"] = figures([r for r in rows if r.status == RECONSTRUCTED])
    fit = [row for row in rows if row.status == FIT]
    found["fit"] = figures(fit)
    left_out = [range_error(row.without_source, row.metric) for row in fit]
    found["fit"]["leave_source_out_median_abs_error"] = _median(abs(e) for e in left_out if e is not None)
    return found


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Coverage, median and p90 of |error|, bias (mean signed error) and how many lie inside the range."""
    errors = np.array([row.error for row in rows if row.error is not None])
    size = np.abs(errors)
    return {
        "count": len(rows),
        "predicted": len(errors),
        "coverage": len(errors) / len(rows) if rows else None,
        "inside": int((size == 0).sum()),
        "median_abs_error": float(np.median(size)) if len(size) else None,
        "p90_abs_error": float(np.quantile(size, 0.9)) if len(size) else None,
        "bias": float(errors.mean()) if len(size) else None,
    }


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return float(np.median(found)) if found else None
