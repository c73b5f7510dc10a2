"""Residuals come from compared rows alone; an operation without any says that its error is assumed."""

from __future__ import annotations

from typing import cast

import pytest

from v4calib.aic.draft import Draft
from v4calib.aic.source import Source
from v4sim.cost.profile import dump_profile, parse_profile


@pytest.fixture
def draft() -> Draft:
    made = Draft("b200", cast("Source", None))
    source = made.published("aic.test", "some/table", {"sglang": "0.5.14"})
    made.add_table("lm_head.v4-flash.tp1", {"tokens": [1, 10]}, [1.23456, 9.87654], source)
    made.add_fit(
        "h2d_copy", {"bytes": (1.0, 1e9)}, [("per_byte", 1e-5, ("bytes",))], "sum", source, assumed=0.2
    )
    return made


def test_residuals_are_of_the_compared_rows(draft: Draft) -> None:
    for predicted in (101.0, 98.0, 100.0, 110.0):
        draft.compare("lm_head.v4-flash.tp1", predicted, 100.0)
    residual = draft.profile("test").operation("lm_head.v4-flash.tp1").residual
    assert residual.rows == 4
    assert residual.median == pytest.approx(0.015)
    assert residual.p95 == pytest.approx(0.088)


def test_an_assumed_error_has_no_rows(draft: Draft) -> None:
    residual = draft.profile("test").operation("h2d_copy").residual
    assert (residual.p95, residual.rows) == (0.2, 0)


def test_a_drafted_profile_is_a_valid_file_with_rounded_values(draft: Draft) -> None:
    profile = draft.profile("test")
    assert parse_profile(dump_profile(profile), "drafted") == profile
    assert profile.operation("lm_head.v4-flash.tp1").values == (1.235, 9.877)
