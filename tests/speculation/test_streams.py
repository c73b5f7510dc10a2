"""Random numbers by address: uniform, independent, and the same one by one as in bulk."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim import streams

KEYS = st.integers(0, (1 << 64) - 1)


@given(key=KEYS, first=st.integers(0, 1 << 40), count=st.integers(0, 40))
def test_one_by_one_equals_in_bulk(key: int, first: int, count: int) -> None:
    bulk = streams.uniforms(key, count, first)
    assert bulk.tolist() == [streams.uniform(key, first + i) for i in range(count)]


@given(pairs=st.lists(st.tuples(KEYS, st.integers(0, 1 << 30)), max_size=20))
def test_any_addresses_at_once_equal_one_by_one(pairs: list[tuple[int, int]]) -> None:
    keys = np.array([key for key, _ in pairs], dtype=np.uint64)
    indices = np.array([index for _, index in pairs], dtype=np.int64)
    found = streams.uniforms_at(keys, indices)
    assert found.tolist() == [streams.uniform(key, index) for key, index in pairs]


@given(key=KEYS)
def test_draws_lie_in_the_unit_interval(key: int) -> None:
    draws = streams.uniforms(key, 200)
    assert draws.min() >= 0.0
    assert draws.max() < 1.0


@pytest.mark.parametrize("seed", range(3))
def test_draws_are_uniform(seed: int) -> None:
    """χ² over 100 cells of 100,000 draws: 99 degrees of freedom, four deviations of √(2·99)."""
    draws = streams.uniforms(streams.mix(seed, streams.ACCEPTANCE, 12345), 100_000)
    counts = np.bincount((draws * 100).astype(int), minlength=100)
    chi_square = float(((counts - 1000) ** 2 / 1000).sum())
    assert abs(chi_square - 99) < 4 * np.sqrt(2 * 99)


@pytest.mark.parametrize("purpose", [streams.ACCEPTANCE, streams.ARRIVAL, streams.ROUTING])
def test_neighbouring_addresses_are_independent(purpose: int) -> None:
    """Of the next index, the next item and the next seed: correlation within four deviations 1/√n."""
    count = 20_000
    base = streams.uniforms(streams.mix(1, purpose, 7), count + 1)
    others = [
        base[1:],
        streams.uniforms(streams.mix(1, purpose, 8), count),
        streams.uniforms(streams.mix(2, purpose, 7), count),
        streams.uniforms(streams.mix(1, purpose + 1, 7), count),
    ]
    for other in others:
        assert abs(np.corrcoef(base[:-1], other)[0, 1]) < 4 / np.sqrt(count)
    # The first draw of consecutive items is as uniform as a stream.
    firsts = np.array([streams.uniform(streams.mix(1, purpose, item)) for item in range(4000)])
    assert firsts.mean() == pytest.approx(0.5, abs=4 * np.sqrt(1 / 12 / 4000))


@given(parts=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=2, max_size=4, unique=True))
def test_the_order_of_the_parts_matters(parts: list[int]) -> None:
    assert streams.mix(*parts) != streams.mix(*reversed(parts))
    assert 0 <= streams.mix(*parts) < 1 << 64


def test_purposes_have_addresses_of_their_own() -> None:
    purposes = [streams.ACCEPTANCE, streams.ARRIVAL, streams.ROUTING, streams.PROFILE, streams.RESAMPLE]
    assert len({streams.mix(0, purpose) for purpose in purposes}) == len(purposes)


def test_addresses_stay_what_they_are() -> None:
    """A change of the mixer changes every published run: SplitMix64's own first output for seed 0."""
    assert streams.uniform(0, 0) == (0xE220A8397B1DCDAF >> 11) * 2.0**-53
