"""From published acceptance lengths to chances per position, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.acceptance import PHASES, acceptance_table, conditional_rates, mean_length, table_names
from v4sim.errors import ConfigError
from v4traces.schema import PHASES as TRACE_PHASES

# AL(1), AL(2), … as published for V4-Pro with MTP, thinking on and off (InferenceX, dsv4_mtp.yaml).
MTP_ON = (1.79, 2.27, 2.49, 2.54, 2.55, 2.55, 2.54, 2.58)
MTP_OFF = (1.92, 2.61, 2.97, 3.0, 3.1, 3.16, 3.0, 3.11)


def test_the_length_is_one_plus_the_chances_that_all_so_far_are_accepted() -> None:
    rates = conditional_rates(MTP_ON)
    assert rates[0] == pytest.approx(0.79)
    assert rates[1] == pytest.approx((2.27 - 1.79) / 0.79)
    assert rates[2] == pytest.approx((2.49 - 2.27) / (2.27 - 1.79))


@pytest.mark.parametrize("lengths", [MTP_ON, MTP_OFF])
def test_the_rates_give_the_published_lengths_back_as_long_as_they_rise(lengths: tuple[float, ...]) -> None:
    rates = conditional_rates(lengths)
    best = 1.0
    for k in range(1, len(lengths) + 1):
        best = max(best, lengths[k - 1])
        found = mean_length(rates[:k])
        # AL(k) − AL(k−1) cannot exceed its predecessor: late bumps of the table are noise, and are cut.
        assert found <= best + 1e-12
        if k <= 4:
            assert found == pytest.approx(lengths[k - 1])
        assert found == pytest.approx(lengths[k - 1], abs=0.13)


def test_acceptance_saturates_and_is_no_constant() -> None:
    """V4's MTP: each further draft is worth less, and from the fifth on next to nothing."""
    rates = conditional_rates(MTP_ON)
    gain = [mean_length(rates[: k + 1]) - mean_length(rates[:k]) for k in range(8)]
    assert gain == sorted(gain, reverse=True)
    assert gain[0] > 0.7
    assert gain[4] < 0.02
    assert max(rates[:3]) - min(rates[:3]) > 0.3


@given(st.lists(st.floats(1.0, 9.0), max_size=8))
def test_rates_are_chances_whatever_is_published(lengths: list[float]) -> None:
    rates = conditional_rates(lengths)
    assert len(rates) == len(lengths)
    assert all(0.0 <= rate <= 1.0 for rate in rates)
    assert 1.0 <= mean_length(rates) <= 1.0 + len(rates)


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=8))
def test_lengths_of_rates_lead_back_to_the_rates(rates: list[float]) -> None:
    lengths = [mean_length(rates[:k]) for k in range(1, len(rates) + 1)]
    assert conditional_rates(lengths) == pytest.approx(tuple(rates), rel=1e-6, abs=1e-6)


def test_the_phases_are_those_of_a_trace() -> None:
    assert PHASES == TRACE_PHASES


@pytest.mark.parametrize("name", table_names())
def test_every_table_has_every_phase_and_says_where_it_comes_from(name: str) -> None:
    table = acceptance_table(name)
    assert set(table.rates) == set(PHASES)
    assert "InferenceX" in table.source
    for drafts in (0, 1, 3, 16):
        rows = table.for_drafts(drafts)
        assert [len(row) for row in rows] == [drafts] * len(PHASES)
        assert all(rate == 0.0 for row in rows for rate in row[8:])


def test_reasoning_and_visible_text_have_their_own_rates_where_both_were_published() -> None:
    table = acceptance_table("v4-pro-mtp")
    assert table.rates["reasoning"] == conditional_rates(MTP_ON)
    assert table.rates["recovery"] == conditional_rates(MTP_ON)
    for phase in ("code", "tool_json", "prose"):
        assert table.rates[phase] == conditional_rates(MTP_OFF)


def test_a_constant_is_the_same_chance_everywhere() -> None:
    assert acceptance_table("constant:0.7").for_drafts(5)[0] == (0.7,) * 5


@pytest.mark.parametrize("name", ["constant:1.2", "constant:-0.1", "constant:x", "constant:nan"])
def test_a_chance_outside_its_range_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"must lie in \[0, 1\]"):
        acceptance_table(name)


def test_an_unknown_table_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"v4-pro-mtp.*constant:P"):
        acceptance_table("v5")
