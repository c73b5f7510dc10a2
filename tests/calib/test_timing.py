"""One number: steady before it counts, repeated until its interval is small, and honest where it is not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from v4calib.device import GRAPH_COLD
from v4calib.timing import Budget, interval, measure, median


class Case:
    copies, copy_bytes, us = 1, 0, 100.0


class Shaped:
    """Durations as a function of how many were taken."""

    def __init__(self, shape: Callable[[int], float]) -> None:
        self.taken, self.shape = 0, shape

    def sample_us(self, case: Any, variant: Any, count: int) -> list[float]:
        out = []
        for _ in range(count):
            self.taken += 1
            out.append(self.shape(self.taken))
        return out


def test_a_slow_start_is_not_in_the_number() -> None:
    """triton#2306: with a fixed short warm-up this kernel reads 11.23 ms, steady it is 8.79 ms."""
    clock = Shaped(lambda n: 8790.0 + 4000.0 * max(0.0, 1 - n / 60))
    timing = measure(clock, Case(), GRAPH_COLD, Budget(0.01, 60.0))
    assert timing.steady
    assert timing.us < 8790 * 1.02
    assert timing.warm_up >= 50, "a constant warm-up of a few launches would have been too short"


def test_noise_is_repeated_away_until_the_interval_is_small() -> None:
    draws = random.Random(1)
    clock = Shaped(lambda n: 100.0 * draws.uniform(0.9, 1.1))
    rough = measure(clock, Case(), GRAPH_COLD, Budget(0.05, 60.0))
    fine = measure(clock, Case(), GRAPH_COLD, Budget(0.015, 60.0))
    assert fine.ci <= 0.015
    assert rough.ci <= 0.05
    assert fine.samples > 2 * rough.samples


def test_the_time_limit_ends_a_hopeless_point_and_the_row_shows_it() -> None:
    draws = random.Random(2)
    clock = Shaped(lambda n: 1e5 * draws.uniform(0.2, 3.0))
    timing = measure(clock, Case(), GRAPH_COLD, Budget(0.01, 0.5))
    assert timing.ci > 0.01
    assert clock.taken < 60


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=60))
def test_the_interval_encloses_the_median_and_stays_in_the_data(values: list[float]) -> None:
    us, low, high = interval(values)
    assert min(values) <= low <= us <= high <= max(values)
    assert us == median(values)


def test_the_interval_covers_the_true_median_19_times_in_20() -> None:
    draws = random.Random(3)
    covered = 0
    for _ in range(400):
        _, low, high = interval([draws.lognormvariate(0, 0.5) for _ in range(25)])
        covered += low <= 1.0 <= high
    assert covered >= 0.93 * 400
