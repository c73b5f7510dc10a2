"""Every target of the project stays as well predicted as when `bounds.json` was committed, plus a margin.

One seed, no intervals: seconds instead of `make backtest`'s minutes. A bound is the size of the committed
error; loosening one needs an entry in DECISIONS.md that says why. After an improvement, write them anew:
`V4SIM_WRITE_BOUNDS=1 pytest tests/backtest/test_bounds.py`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from v4sim.backtest.document import Backtest
from v4sim.backtest.run import backtest
from v4sim.backtest.schema import read_targets

BOUNDS = Path(__file__).with_name("bounds.json")
MARGIN = 0.03  # of the published value
MEDIAN_MARGIN = 0.01


@pytest.fixture(scope="module")
def found() -> Backtest:
    return backtest(read_targets("built-in"), seeds=1)


@pytest.fixture(scope="module")
def errors(found: Backtest) -> dict[str, float]:
    """Signed error by target and metric, of every row that has one."""
    rows = {f"{row.target.id} {row.metric.label}": row.error for row in found.rows if row.status != "min-max"}
    errors = {name: round(error, 4) for name, error in rows.items() if error is not None}
    if os.environ.get("V4SIM_WRITE_BOUNDS"):
        BOUNDS.write_text(json.dumps(errors, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return errors


@pytest.fixture(scope="module")
def bounds() -> dict[str, float]:
    return {name: float(error) for name, error in json.loads(BOUNDS.read_text(encoding="utf-8")).items()}


def test_no_prediction_has_become_worse(errors: dict[str, float], bounds: dict[str, float]) -> None:
    worse = {
        name: f"{errors[name]:+.1%}, committed {bound:+.1%}"
        for name, bound in bounds.items()
        if name in errors and abs(errors[name]) > abs(bound) + MARGIN
    }
    assert worse == {}


def test_every_target_that_was_predicted_still_is_and_none_is_without_a_bound(
    errors: dict[str, float], bounds: dict[str, float]
) -> None:
    assert sorted(errors) == sorted(bounds)


def test_the_median_error_of_the_score_holds(found: Backtest, bounds: dict[str, float]) -> None:
    scored = {f"{row.target.id} {row.metric.label}" for row in found.rows if row.counts}
    committed = float(np.median([abs(bounds[name]) for name in scored]))
    assert found.summary()["median_abs_error"] <= committed + MEDIAN_MARGIN
    assert found.summary()["coverage"] == 1.0
