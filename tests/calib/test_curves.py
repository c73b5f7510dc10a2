"""Thinning and monotony: what the import does to a noisy table."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4calib.curves import interpolate, rising, rising_grid, rounded, safe_beyond, thin
from v4sim.cost.tables import Grids

times = st.floats(0.5, 1e6, allow_nan=False)
curves = st.dictionaries(st.integers(1, 100_000), times, min_size=2, max_size=30)


@given(st.lists(times, min_size=1, max_size=30))
def test_rising_never_falls_and_keeps_what_already_rises(values: list[float]) -> None:
    found = rising(values)
    assert all(b >= a for a, b in pairwise(found))
    assert min(values) - 1e-9 <= found[0]
    assert found[-1] <= max(values) * (1 + 1e-12)
    assert rising(sorted(values)) == sorted(values)


def test_one_slow_outlier_does_not_lift_all_larger_sizes() -> None:
    found = rising([100.0, 250.0, 102.0, 104.0, 150.0, 200.0])
    assert found[-1] == 200.0
    assert found[1] < 130.0


@given(
    st.integers(2, 6).flatmap(
        lambda w: st.lists(st.lists(times, min_size=w, max_size=w), min_size=2, max_size=6)
    )
)
def test_a_grid_rises_along_both_axes(rows: list[list[float]]) -> None:
    grid = rising_grid(rows)
    for row in grid:
        assert all(b >= a for a, b in pairwise(row))
    for upper, lower in pairwise(grid):
        assert all(b >= a for a, b in zip(upper, lower, strict=True))


@given(curves)
def test_a_thinned_curve_stays_within_its_error(curve: dict[int, float]) -> None:
    points, values = thin(curve, 0.02)
    monotone = dict(zip(sorted(curve), rising([curve[p] for p in sorted(curve)]), strict=True))
    assert points[0] == min(curve)
    assert points[-1] == max(curve)
    for x, y in monotone.items():
        assert interpolate(points, values, x) == pytest.approx(y, rel=0.021)


def test_a_straight_line_needs_its_ends_only() -> None:
    points, values = thin({x: 3.0 + 2.0 * x for x in range(1, 50)})
    assert points == [1, 49]
    assert values == [5.0, 101.0]


def test_rounding_keeps_four_digits_and_no_negative_time() -> None:
    assert rounded(123.456) == 123.5
    assert rounded(-0.2) == 0.0


@given(
    st.lists(st.lists(st.floats(0.1, 1e4), min_size=3, max_size=3), min_size=3, max_size=3),
    st.floats(1, 1e6),
    st.floats(1, 1e6),
)
def test_a_safe_grid_never_falls_beyond_its_end(rows: list[list[float]], x: float, y: float) -> None:
    raised = safe_beyond(rising_grid(rows))
    grid = Grids((0.0, 1.0, 4.0), (0.0, 1.0, 4.0), [raised])
    at_end = grid.at(4.0, 4.0)[0]
    beyond = grid.at(4.0 + x, 4.0 + y)[0]
    assert beyond >= at_end * (1 - 1e-9) - 1e-6 * (x + y + x * y)
    assert grid.at(4.0 + x, 0.0)[0] >= raised[2][0] * (1 - 1e-9)
