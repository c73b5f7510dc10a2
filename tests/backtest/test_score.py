"""Errors, what counts, and the arithmetic of summaries and intervals."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.backtest.document import Backtest, as_json, as_markdown
from v4sim.backtest.intervals import calibration, interval_score
from v4sim.backtest.replay import Prediction, Replayed
from v4sim.backtest.schema import Metric, Refusal, Target, TargetFile
from v4sim.backtest.score import FIT, RECONSTRUCTED, SCORED, figures, range_error, rows_of, summary

Make = Callable[..., Target]


def metric(
    name: str = "ttft_ms", stat: str = "p50", low: float = 90, high: float = 110, **more: Any
) -> Metric:
    return Metric(name=name, stat=stat, value=(low + high) / 2, low=low, high=high, **more)


def replayed(target: Target, *pairs: tuple[Metric, float | None], reconstructed: bool = False) -> Replayed:
    return Replayed(target, tuple(Prediction(m, p) for m, p in pairs), (), (), reconstructed)


@pytest.mark.parametrize(
    ("predicted", "error"), [(100, 0.0), (90, 0.0), (110, 0.0), (121, 0.1), (81, -0.1), (45, -0.5)]
)
def test_the_error_counts_from_the_nearest_edge(predicted: float, error: float) -> None:
    assert range_error(predicted, metric()) == pytest.approx(error)


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_the_error_is_never_larger_than_from_any_point_of_the_range(a: float, b: float, p: float) -> None:
    low, high = min(a, b), max(a, b)
    error = range_error(p, metric(low=low, high=high))
    assert error is not None
    for point in (low, high):
        assert abs(error) <= abs(p - point) / point * (1 + 1e-9) or low <= p <= high


def test_a_quantity_is_scored_once(target: Make) -> None:
    rows = rows_of(
        replayed(
            target(),
            (metric(), 100),
            (metric(stat="mean"), 100),
            (metric(stat="p95"), 100),
            (metric("ttft_ms_observed_range", "min-max"), 100),
            (metric("tpot_ms"), 100),
            (metric("decode_tok_s"), 100),
            (metric("verify_step_ms", "p99", derived=True), 100),
            (metric("tpot_ms", at={"concurrency": 2}), 100),
            (metric("colour", "p50"), None),
        )
    )
    assert [row.status for row in rows] == [
        SCORED,
        "second form of a scored quantity",
        SCORED,
        "min-max",
        SCORED,
        "second form of a scored quantity",
        "derived",
        SCORED,
        "refused",
    ]


def test_second_hand_reconstructed_and_fit_rows_stand_apart(target: Make) -> None:
    assert rows_of(replayed(target(confidence="low"), (metric(), 1)))[0].status == "second-hand"
    assert rows_of(replayed(target(), (metric(), 1), reconstructed=True))[0].status == RECONSTRUCTED
    shared = target(id="V14c-132K-specoff")
    row = rows_of(replayed(shared, (metric(), 100)), replayed(shared, (metric(), 45)))[0]
    assert row.status == FIT
    assert row.without_source == 45


def test_figures_by_hand(target: Make) -> None:
    rows = rows_of(
        replayed(
            target(),
            (metric(), 100),  # inside
            (metric("tpot_ms"), 121),  # +10 %
            (metric("output_tok_s", "mean"), 72),  # -20 %
            (metric("colour"), None),
        )
    )
    found = figures(rows)
    assert (found["count"], found["predicted"], found["inside"]) == (4, 3, 1)
    assert found["coverage"] == pytest.approx(0.75)
    assert found["median_abs_error"] == pytest.approx(0.1)
    assert found["p90_abs_error"] == pytest.approx(np.quantile([0, 0.1, 0.2], 0.9))
    assert found["bias"] == pytest.approx(-0.1 / 3)


def test_a_refused_target_lowers_coverage(target: Make) -> None:
    rows = rows_of(replayed(target(), (metric(), 100)))
    unread = Refusal("unread", "num_gpus: it is text", 3)
    found = summary(rows, TargetFile("f", (target(),), (unread,)), [unread])
    assert found["coverage"] == pytest.approx(1 / 4)
    assert found["targets"] == {"total": 2, "run": 1, "refused": 1}
    assert found["by_metric"]["ttft"]["coverage"] == 1.0


def test_intervals_by_hand() -> None:
    assert interval_score(100, 90, 110) == pytest.approx(0.2)
    assert interval_score(100, 110, 120) == pytest.approx(0.1 + 10 * 0.1)
    found = calibration([(metric(), (90, 110)), (metric(), (110, 120)), (metric(), (50, 101))])
    assert found["inside"] == pytest.approx(2 / 3)
    assert found["median_relative_width"] == pytest.approx(0.2)


def test_both_documents_hold_every_row(target: Make) -> None:
    rows = tuple(rows_of(replayed(target(), (metric(), 100), (metric("output_tok_s", "mean"), 72))))
    found = Backtest(
        TargetFile("hand.json", (target(),), ()),
        rows,
        {"hand": replayed(target(), (metric(), 100))},
        (Refusal("gone", "no rule"),),
        3,
    )
    data = json.loads(as_json(found))
    assert [row["error"] for row in data["rows"]] == [0.0, -0.2]
    assert set(data["summary"]) >= {"coverage", "median_abs_error", "p90_abs_error", "bias"}
    page = as_markdown(found, "A finding.")
    for text in ("| hand | ttft_ms p50 | 100 |", "-20.0%", "- gone: no rule", "A finding."):
        assert text in page
