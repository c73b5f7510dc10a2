"""Samples of a state over time: means are over time, and no bin hides a peak."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4reports.columns import Floats, held_maxima, held_means

# Instants on a grid, so that an integral by brute force is exact.
samples = st.dictionaries(st.integers(0, 99), st.integers(0, 1000), min_size=1, max_size=60)


def arrays(found: dict[int, int]) -> tuple[Floats, Floats]:
    instants = sorted(found)
    return np.array(instants, dtype=float), np.array([found[t] for t in instants], dtype=float)


def state_at(found: dict[int, int], instant: int) -> int:
    earlier = [t for t in found if t <= instant]
    return found[max(earlier)] if earlier else 0


@given(samples, st.sampled_from([1, 2, 4, 5, 10, 20, 50]))
def test_bins_agree_with_the_state_at_every_instant(found: dict[int, int], width: int) -> None:
    t_s, values = arrays(found)
    edges = np.arange(0, 100 + width, width, dtype=float)
    states = np.array([state_at(found, instant) for instant in range(100)]).reshape(-1, width)
    assert held_means(t_s, values, edges) == pytest.approx(states.mean(axis=1))
    assert held_maxima(t_s, values, edges).tolist() == states.max(axis=1).tolist()


@given(samples)
def test_the_mean_of_the_bins_is_the_mean_of_the_whole(found: dict[int, int]) -> None:
    t_s, values = arrays(found)
    fine, coarse = (held_means(t_s, values, np.linspace(0, 100, n + 1)) for n in (16, 1))
    assert fine.mean() == pytest.approx(coarse[0])
