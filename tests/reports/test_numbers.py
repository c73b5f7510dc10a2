"""Numbers on the page: what is shown is what was meant, in a unit that can be read."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4reports import numbers

UNITS_S = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86_400.0}
SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
magnitudes = st.floats(min_value=1e-6, max_value=1e14)


def back(text: str, units: dict[str, float]) -> float:
    number, _, unit = text.replace(numbers.MINUS, "-").replace(",", "").partition(numbers.GAP)
    return float(number) * units[unit]


@given(magnitudes, st.sampled_from([1, -1]))
def test_three_digits_are_within_half_a_per_cent(size: float, sign: int) -> None:
    assert back(numbers.digits(size * sign), {"": 1.0}) == pytest.approx(size * sign, rel=5.01e-3)


@given(st.floats(min_value=1e-9, max_value=1e8))
def test_a_duration_reads_back_as_itself(value: float) -> None:
    assert back(numbers.seconds(value), UNITS_S) == pytest.approx(value, rel=5.01e-3)


@given(magnitudes)
def test_a_scaled_number_reads_back_as_itself(value: float) -> None:
    assert back(numbers.scaled(value), SCALES) == pytest.approx(value, rel=5.01e-3)


@given(st.floats(min_value=1e-6, max_value=1e7), st.floats(min_value=0.01, max_value=1.0))
def test_a_column_has_one_unit(largest: float, share: float) -> None:
    texts = [numbers.seconds_like(value, largest) for value in (largest, largest * share)]
    assert len({text.split(numbers.GAP)[1] for text in texts}) == 1
    assert back(texts[1], UNITS_S) == pytest.approx(largest * share, rel=5.01e-3)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9.996, "10.0"),  # rounding up must not add a digit
        (0.0210, "0.0210"),
        (99.95, "100"),
        (1234.5, "1,234"),
        (0, "0"),
        (-3.14159, f"{numbers.MINUS}3.14"),
        (None, numbers.UNKNOWN),
        (math.nan, numbers.UNKNOWN),
    ],
)
def test_digits(value: float | None, text: str) -> None:
    assert numbers.digits(value) == text


@given(st.floats(min_value=0.0, max_value=1.0, exclude_max=True))
def test_a_ratio_below_one_never_reads_as_all(ratio: float) -> None:
    assert not numbers.percent(ratio).startswith("100")
    assert (numbers.percent(ratio) == f"0{numbers.GAP}%") == (ratio == 0)


@given(st.floats(min_value=1, max_value=1e15))
def test_a_size_reads_back_as_itself(value: float) -> None:
    units = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
    assert back(numbers.size(value), units) == pytest.approx(value, rel=5.01e-3, abs=0.5)


def test_unknown_is_never_zero() -> None:
    for show in (
        numbers.digits,
        numbers.integer,
        numbers.scaled,
        numbers.seconds,
        numbers.ms,
        numbers.percent,
    ):
        assert show(None) == numbers.UNKNOWN
        assert show(0.0).startswith("0")
    assert numbers.dollars(None) == numbers.UNKNOWN
    assert numbers.dollars(0.0) == "$0.00"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0421, "$0.0421"), (1.5, "$1.50"), (1234.5, "$1,234.50"), (-0.5, f"{numbers.MINUS}$0.500")],
)
def test_dollars(value: float, text: str) -> None:
    assert numbers.dollars(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.1234, "+12.3 %"),
        (-0.05, f"{numbers.MINUS}5.0 %"),
        (0.0004, "±0 %"),
        (12.0, "×13.0"),
        (8.0, "+800.0 %"),
    ],
)
def test_a_change_has_a_sign(ratio: float, text: str) -> None:
    assert numbers.signed_percent(ratio).replace(numbers.GAP, " ") == text


@given(st.floats(0, 1e6), st.floats(min_value=0.5, max_value=1e7))
def test_a_time_axis_has_a_few_ticks_inside(start: float, span: float) -> None:
    ticks = numbers.clock_ticks(start, start + span)
    assert 1 <= len(ticks) <= 8
    assert all(start - 1e-6 * span <= tick <= start + span * (1 + 1e-6) for tick in ticks)
    assert ticks == sorted(ticks)
