"""Host memory of a cache tier: the arithmetic of public reports, checked before anything runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.capacity import host
from v4sim.errors import CapacityError

MIB = 2**20


def test_a_ratio_that_pins_more_than_the_node_has() -> None:
    """InferenceX 2777: ratio 2.5 pins 4.8 TB on a node with 3,095,781 MiB = 3.25 TB."""
    node, device = 3_095_781 * MIB, 240_000_000_000
    with pytest.raises(CapacityError, match=r"2\.5 times .* 4\.80 TB .* 3\.25 TB.* fits is 1\.69"):
        host.check_ratio(device, 2.5, 8, node)
    assert host.check_ratio(device, 1.69, 8, node) < node


@given(st.integers(10**9, 10**12), st.integers(1, 16), st.integers(10**11, 10**13))
def test_the_largest_ratio_fits_and_one_above_does_not(device: int, ranks: int, node: int) -> None:
    ratio = host.largest_ratio(device, ranks, node)
    assert host.pinned_bytes(device, ratio * 0.999, ranks) <= node
    assert host.pinned_bytes(device, ratio * 1.001, ranks) > node


def test_the_automatic_size() -> None:
    """SGLang 40135: 8 ranks, 1,000 GiB, container limit 500 GiB: 0.8 x (500 - 10) / 8 = 49 GiB a rank."""
    assert host.auto_budget_gib([1000.0], [500.0], 8) == pytest.approx(49.0)


def test_the_smallest_node_decides() -> None:
    assert host.auto_budget_gib([1000.0, 260.0], [None, None], 8) == pytest.approx(25.0)


def test_a_tier_without_memory_is_an_error() -> None:
    """SGLang 21880: a container with nothing to pin ran at 0.2 tok/s without a word."""
    with pytest.raises(CapacityError, match=r"no memory.*container limit 8"):
        host.auto_budget_gib([1000.0], [8.0], 8)
