"""Intervals over sessions: exact where they can be worked out, sensible where they cannot."""

from __future__ import annotations

import numpy as np
import pytest

from v4sim.metrics.bootstrap import COVERAGE, FEWEST_UNITS, RESAMPLES, SessionBootstrap


def over(unit_of_call, seed=0):
    units = np.asarray(unit_of_call, dtype=np.int64)
    return SessionBootstrap.over(units, int(units.max()) + 1, seed)


def direct_quantiles(values, units, draws, q):
    """The same resamples, done the slow way: repeat each unit's values and take the order statistic."""
    found = []
    for draw in draws.astype(int):
        pool = np.sort(np.concatenate([np.repeat(values[units == u], n) for u, n in enumerate(draw)]))
        found.append(pool[int(q * (len(pool) - 1))])
    tail = (1 - COVERAGE) / 2
    return list(np.quantile(found, [tail, 1 - tail]))


def test_quantiles_agree_with_resampling_done_the_slow_way():
    rng = np.random.default_rng(3)
    units = rng.integers(0, 20, 200)
    units[:20] = np.arange(20)
    values = np.sort(rng.integers(0, 10_000, 200))
    bootstrap = over(units)
    found = bootstrap.quantiles(values, np.arange(200), (0.5, 0.95))
    for q, interval in zip((0.5, 0.95), found, strict=True):
        assert interval == direct_quantiles(values, units, bootstrap.draws, q)


def test_bins_stay_close_to_single_values():
    rng = np.random.default_rng(4)
    units = np.arange(30_000) % 60
    values = np.sort(rng.lognormal(0, 1, 30_000) * 1e9).astype(np.int64)
    bootstrap = over(units)
    (found,) = bootstrap.quantiles(values, np.arange(30_000), (0.5,))
    assert found == pytest.approx(direct_quantiles(values, units, bootstrap.draws, 0.5), rel=0.01)


def test_equal_sessions_have_no_spread():
    (interval,) = over(np.arange(40) % 10).quantiles(np.full(40, 7), np.arange(40), (0.95,))
    assert interval == [7.0, 7.0]


def test_calls_of_one_session_move_together():
    """A value that only one of ten sessions has is in the interval or out of it as a whole."""
    units = np.arange(100) % 10
    values = np.where(units == 0, 1000, 1)
    order = np.argsort(values, kind="stable")
    (p95,) = over(units).quantiles(values[order], order, (0.95,))
    assert p95 == [1.0, 1000.0]


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    covered = 0
    for trial in range(200):
        sessions = rng.normal(100, 20, 64)
        values = (np.repeat(sessions, 10) + rng.normal(0, 5, 640)) * 1000
        order = np.argsort(values)
        bootstrap = over(np.repeat(np.arange(64), 10), seed=trial)
        (low, high), *_ = bootstrap.quantiles(values[order].astype(np.int64), order, (0.5,))
        covered += low <= 100_000 <= high
    # 80 % of 200 is 160; the binomial spread is about 6.
    assert 140 <= covered <= 180


def test_a_ratio_is_resampled_by_session():
    units = np.arange(12)
    ratio = over(units).ratio(np.full(12, 3.0), np.full(12, 4.0))
    assert ratio == [0.75, 0.75]
    assert over(units).ratio(np.ones(12), np.zeros(12)) is None


def test_too_few_sessions_have_no_interval():
    assert over(np.arange(FEWEST_UNITS)) is not None
    assert over(np.arange(FEWEST_UNITS - 1)) is None


def test_the_same_seed_draws_the_same():
    units = np.arange(50)
    assert (over(units, 1).draws == over(units, 1).draws).all()
    assert (over(units, 1).draws != over(units, 2).draws).any()
    assert over(units).draws.shape == (RESAMPLES, 50)
