"""What does not fit a clock of 64-bit nanoseconds is an error, not a sum that wrapped around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from v4sim.cost.base import ConstantCost
from v4sim.errors import ConfigError
from v4traces import CallRow

YEAR_S = 3.156e7


def rows(calls: int) -> list[CallRow]:
    return [
        CallRow(session_id=f"s{number}", turn=0, prompt_tokens=300, output_tokens=40, arrival_s=0.0)
        for number in range(calls)
    ]


def test_a_run_of_a_century_is_one(simulate_rows: Callable[..., Any]) -> None:
    result = simulate_rows(rows(2), cost=ConstantCost(YEAR_S))
    assert result.end_ns > 40 * YEAR_S * 1e9
    assert result.itl_burst.total_ns == (result.calls["last_token_ns"] - result.calls["first_token_ns"]).sum()


def test_sums_over_calls_that_are_longer_are_refused(simulate_rows: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"The time of all calls together passes 146 years .* the profile"):
        simulate_rows(rows(8), cost=ConstantCost(YEAR_S))
