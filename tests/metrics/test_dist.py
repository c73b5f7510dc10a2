"""Percentiles by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.metrics.dist import of_values


def test_percentiles_interpolate_between_order_statistics():
    # Positions 0.5·4 = 2, 0.9·4 = 3.6, 0.95·4 = 3.8, 0.99·4 = 3.96 in 1, 2, 3, 4, 10.
    dist = of_values(np.array([4, 1, 3, 10, 2]), per=1.0)
    assert dist == {
        "count": 5,
        "mean": 4.0,
        "min": 1.0,
        "max": 10.0,
        "p50": 3.0,
        "p90": pytest.approx(7.6),
        "p95": pytest.approx(8.8),
        "p99": pytest.approx(9.76),
    }


def test_nothing_has_no_percentiles():
    assert of_values(np.array([], dtype=np.int64), per=1.0) == {"count": 0}


def test_units_are_converted():
    assert of_values(np.array([2_500_000]), per=1e6)["p99"] == 2.5


def test_the_mean_of_large_nanoseconds_does_not_overflow():
    assert of_values(np.full(1000, 2**60, dtype=np.int64), per=1e9)["mean"] == 2**60 / 1e9


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=50))
def test_percentiles_agree_with_numpy_and_ascend(values):
    dist = of_values(np.array(values, dtype=np.int64), per=1e6)
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
        assert dist[name] == pytest.approx(np.quantile(np.array(values) / 1e6, q), rel=1e-12, abs=1e-9)
    ladder = [dist[name] for name in ("min", "p50", "p90", "p95", "p99", "max")]
    assert ladder == sorted(ladder)
