"""Binning keeps what an operator must see: the peak, and means between the extremes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from v4reports.columns import bin_maxima, bin_means

samples = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0, 1e6)), min_size=1, max_size=200
)  # (instant, value)


@given(samples, st.integers(1, 40))
def test_bins_keep_the_peak_and_the_range(pairs: list[tuple[float, float]], num_bins: int) -> None:
    t_s, values = (np.array(column) for column in zip(*sorted(pairs), strict=True))
    edges = np.linspace(0, 100, num_bins + 1)
    maxima, means = bin_maxima(t_s, values, edges), bin_means(t_s, values, edges)
    assert len(maxima) == len(means) == num_bins
    assert maxima.max() == values.max()
    assert np.isfinite(means).all()
    slack = 1e-9 * values.max()
    assert (means <= maxima + slack).all()
    assert means.min() >= values.min() - slack


def test_an_empty_bin_repeats_the_state_before() -> None:
    t_s, values = np.array([0.5, 9.5]), np.array([3.0, 7.0])
    edges = np.linspace(0, 10, 11)
    assert bin_means(t_s, values, edges).tolist() == [3.0] * 9 + [7.0]
    assert bin_maxima(t_s + 0.4, values, edges).tolist() == [3.0] * 9 + [7.0]
