"""Points: the region no table has, the published region beside it, held-out shapes, and minutes of a plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4calib.errors import CalibError
from v4calib.grid import GRIDS, MIXES, Grid, Point, contexts_of, entries_seen, grid
from v4calib.operations import OPERATIONS, select
from v4calib.operations.layers import layer_kinds
from v4calib.plan import described, jobs_for, minutes, plan
from v4kernels.shapes import MODELS
from v4sim.model import spec

LIMIT_MINUTES = {"quick": 6, "full": 60}


@pytest.mark.parametrize("gpu", ["h200", "b200"])
@pytest.mark.parametrize("name", LIMIT_MINUTES)
def test_a_plan_fits_its_minutes(gpu: str, name: str) -> None:
    axes = grid(name)
    rows = plan(jobs_for([], ["v4-flash"], axes), axes, described(gpu))
    assert minutes(rows) < LIMIT_MINUTES[name]
    assert [row.operation for row in rows if not row.points] == ["collective"], "one GPU"
    assert sum(row.held_out for row in rows) > 0.05 * sum(row.points for row in rows)


def test_the_full_grid_covers_what_no_table_has() -> None:
    points = OPERATIONS["index_scan"].points("v4-flash", grid("full"))
    batches = {p["batch"] for p in points}
    assert {1, 64} <= batches
    assert {p["context"] for p in points} >= {8192, 1_048_576}
    assert {p["width"] for p in points} >= {1, 8}
    assert {p.word("mix") for p in points} == set(MIXES)
    assert any(p["batch"] * p["context"] >= 64 << 20 for p in points), "64 sequences of a million tokens"
    assert any(p["batch"] == 1 for p in points), "and the published region, to cross-check"


def test_prefill_grids_end_where_the_published_ones_do() -> None:
    for name in ("quick", "full"):
        assert (grid(name).new[0], grid(name).new[-1]) == (1, 8192)
        assert (grid(name).past[0], grid(name).past[-1]) == (0, 1_000_000)


@pytest.mark.parametrize("axes", GRIDS.values(), ids=GRIDS)
def test_every_operation_has_distinct_points_that_survive_the_file(axes: Grid) -> None:
    for operation in OPERATIONS.values():
        points = [p for model in MODELS for p in operation.points(model, axes) if p.model in (model, "any")]
        assert points or (operation.name, axes.name) == ("candidate_pool", "cpu"), "contexts below a pool"
        for model in MODELS:
            one = operation.points(model, axes)
            assert len({p.key for p in one}) == len(one)
        assert [Point.of(p.as_dict()) for p in points] == points
        for p in points:
            work = operation.work(p)
            assert work.hbm_bytes + work.link_bytes + work.nvlink_bytes > 0
            assert operation.footprint_bytes(p) > 0


def test_layers_are_all_of_the_model() -> None:
    """V4.1: four layers publish entries, four more select, thirty reuse that, two see a window alone."""
    kinds = {(k.name, k.family): k.layers for k in layer_kinds("v4.1-flash")}
    assert kinds == {
        ("csa-c2", "csa"): 3,
        ("csa-c1", "csa"): 1,
        ("reindex", "csa"): 4,
        ("bare", "csa"): 30,
        ("bare", "hca"): 2,
    }
    for name in ("v4-flash", "v4-pro"):
        found = {k.family: k.layers for k in layer_kinds(name)}
        assert found == {"csa": spec(name).n_csa, "hca": spec(name).n_hca}


@given(batch=st.integers(1, 64), context=st.integers(256, 1 << 20))
def test_mixed_batches_hold_as_many_tokens_as_equal_ones(batch: int, context: int) -> None:
    def lengths(mix: str) -> list[int]:
        sizes = (("batch", batch), ("context", context), ("width", 1), ("mix", mix))
        return contexts_of(Point("index_scan", "v4-flash", sizes))

    assert sum(lengths("mixed")) == sum(lengths("equal")) == batch * context
    assert len(lengths("one")) == batch
    assert max(lengths("one")) == context
    assert min(lengths("mixed")) > 0


def test_unknown_names_list_the_choices() -> None:
    with pytest.raises(CalibError, match="quick, full, cpu"):
        grid("huge")
    with pytest.raises(CalibError, match="index_scan, index_scan_prefill"):
        select(["index_scam"])
    assert [op.name for op in select(["topk,copy"])] == ["copy", "topk"]


@given(new=st.integers(1, 300), past=st.integers(0, 5000), ratio=st.sampled_from([1, 4, 128]))
def test_entries_that_a_chunk_sees(new: int, past: int, ratio: int) -> None:
    assert entries_seen(new, past, ratio) == sum((past + i + 1) // ratio for i in range(new))
