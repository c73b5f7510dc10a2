"""RankLoad and ConstantCost: the two paths agree, the busiest rank decides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.cost.base import PART_INDEX, PARTS, ConstantCost
from v4sim.cost.load import RankLoad
from v4sim.errors import ProfileError

seconds = st.floats(0, 10, allow_nan=False)


def test_parts_are_the_named_ones_and_unique() -> None:
    assert len(set(PARTS)) == len(PARTS) == len(PART_INDEX) == 19
    assert PARTS[PART_INDEX["index_scan"]] == "index_scan"


def test_rank_load_knows_its_tokens_and_when_it_is_idle() -> None:
    assert RankLoad(0, 0, 0).idle
    assert not RankLoad(0, 0, 0, ((16, 0),)).idle
    assert RankLoad(2, 300, 200, ((16, 0), (8, 4096))).prefill_tokens == 24


@given(seconds, seconds, st.lists(st.integers(0, 600), min_size=1, max_size=8), st.integers(1, 5))
def test_scalar_and_vector_paths_are_bit_identical(
    step_s: float, row_s: float, rows: list[int], steps: int
) -> None:
    cost = ConstantCost(step_s, row_s)
    ctx = np.full((steps, len(rows)), 4096, dtype=np.int64)
    vector = cost.decode(rows, ctx * np.asarray(rows), ctx, 1)
    loads = [RankLoad(r, 4096 * r, 4096) for r in rows]
    assert vector.shape == (len(PARTS), steps)
    assert vector.T.tolist() == [cost.step(loads, 1, "decode")] * steps


def test_the_busiest_rank_sets_the_step() -> None:
    cost = ConstantCost(1e-3, per_row_s=1e-4, per_prefill_token_s=1e-6)
    loads = [RankLoad(3, 30, 10), RankLoad(1, 10, 10, ((100, 0), (50, 7))), RankLoad(0, 0, 0)]
    assert sum(cost.step(loads, 1, "mixed")) == 1_000_000 + 300_000 + 150_000


@pytest.mark.parametrize("bad", [-1e-9, float("nan"), float("inf")])
def test_a_time_that_is_no_time_is_refused(bad: float) -> None:
    with pytest.raises(ProfileError, match="per_row_s"):
        ConstantCost(1.0, per_row_s=bad)
