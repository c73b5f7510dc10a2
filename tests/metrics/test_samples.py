"""Samples of a long series: the first, the last and as many between as fit, evenly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from v4sim.metrics.samples import evenly


@given(count=st.integers(0, 5000), most=st.integers(1, 300))
def test_samples_are_spread_evenly_from_the_first_to_the_last(count: int, most: int) -> None:
    chosen = evenly(count, most)
    assert len(chosen) == min(count, most)
    if len(chosen) > 1:
        assert (chosen[0], chosen[-1]) == (0, count - 1)
        apart = np.diff(chosen)
        assert apart.min() >= 1
        assert apart.max() - apart.min() <= 1
    elif count:
        assert chosen.tolist() == [0]
