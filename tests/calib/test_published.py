"""The import against the real tables; skipped where neither the package nor its wheel is at hand."""

from __future__ import annotations

import numpy as np
import pytest

from v4calib.aic import make_profile
from v4calib.aic.build import draft_profile
from v4calib.aic.decode import module_rows
from v4calib.aic.draft import Draft
from v4calib.aic.indexer import model_label, topk_table
from v4calib.aic.shapes import SHAPES
from v4calib.aic.source import FOLDERS, Source
from v4calib.residual import residuals
from v4sim.config import resolve
from v4sim.config.deployment import Deployment
from v4sim.cost import load_profile
from v4sim.cost.attention import AttentionCost
from v4sim.cost.profile import dump_profile
from v4sim.model import spec


@pytest.fixture(scope="module")
def draft(published: Source) -> Draft:
    return draft_profile("b200", published)


@pytest.mark.parametrize("gpu", list(FOLDERS))
def test_the_built_in_profiles_regenerate_byte_for_byte(gpu: str, published: Source) -> None:
    assert dump_profile(make_profile(gpu, published)) == dump_profile(load_profile(gpu))


@pytest.mark.parametrize("gpu", ["b200", "h200"])
def test_residuals_on_rows_beside_the_nodes_meet_the_goal(gpu: str, published: Source) -> None:
    report = residuals(load_profile(gpu), published)
    assert report.good
    assert report.total.rows > 10_000
    assert report.own == ()
    assert report.total.median < 0.02


def test_the_tables_show_the_tied_score_hump_that_the_import_removes(published: Source, draft: Draft) -> None:
    """Trap 2: tied dummy scores cost the module 48 to 82 us between a past of 3K and 65K."""
    flash = SHAPES[0]
    raw = module_rows(draft, "sglang", "csa", "generation", flash, 1)
    assert raw[1, 8192] - raw[1, 2048] > 48
    assert raw[1, 8192] - raw[1, 131_072] > 48
    profile = draft.profile("")
    low, high = profile.operation("csa_decode.sglang.v4-flash.tp1").values[0]
    corrected = high + 4.1 + profile.operation("topk_decode.v4-flash").at(ctx_max=8192)
    assert raw[1, 2048] < corrected < raw[1, 131_072]
    assert high - low < 10


def test_prefill_rows_ran_on_tied_scores_as_well(published: Source, draft: Draft) -> None:
    """Less the flat top-k, the rest of a row is constant over the past; less the realistic one it drifts."""
    flash = SHAPES[0]
    raw = module_rows(draft, "sglang", "csa", "context", flash, 1)
    table = topk_table(draft, flash).where(batch_size=1)
    flat = table.where(score_mode="v1_flat").groups("isl", "step")
    real = table.where(score_mode="v1_top_last").groups("isl", "step")
    scans = draft.table("sparse_attention", "sglang", "0.5.14", "dsv4_paged_mqa_logits_module_perf")
    scan = scans.where(batch_size=1).groups("isl", "step")
    pasts = (2048, 4096, 8192, 16_384, 32_768)

    def drift(scores: dict[tuple[int, ...], float]) -> float:
        rest = [raw[1024, p] - scan[1024, p] - scores[1024, p] for p in pasts]
        return (max(rest) - min(rest)) / min(rest)

    assert drift(flat) < 0.02
    assert drift(real) > 0.1


def test_the_scan_tables_are_l2_resident(published: Source, draft: Draft) -> None:
    """Trap 1: the slope of single-token rows is faster than HBM, and does not change with the width."""
    scans = draft.table("sparse_attention", "sglang", "0.5.14", "dsv4_paged_mqa_logits_module_perf")
    rows = scans.where(batch_size=1).groups("isl", "step")

    def ps_per_pair(width: int) -> float:
        return (rows[width, 1_000_000] - rows[width, 262_144]) * 1e6 / ((1_000_000 - 262_144) / 4) / width

    assert 132 / ps_per_pair(1) > 7.7, "TB/s: above the HBM of a B200"
    assert ps_per_pair(8) == pytest.approx(ps_per_pair(1), rel=0.1)
    fitted = draft.operations["index_scan.v4-flash.fp8"]
    assert fitted.term("matrix") * 1e6 == pytest.approx(ps_per_pair(8), rel=0.1)
    assert fitted.term("hbm") > 1.5 * fitted.term("matrix")


def test_tp_rows_are_rank_zero_without_collectives(published: Source, draft: Draft) -> None:
    """Trap 4: the split over TP saves projections; collectives are operations of their own."""
    flash = SHAPES[0]
    one, eight = (module_rows(draft, "sglang", "csa", "generation", flash, tp)[512, 1024] for tp in (1, 8))
    assert eight < one
    assert "all_reduce.sglang.gpus8" in draft.operations


def test_vllm_steps_of_two_microseconds_are_averaged(published: Source, draft: Draft) -> None:
    rows = module_rows(draft, "vllm", "hca", "generation", SHAPES[0], 8)
    short = [us for (batch, past), us in rows.items() if batch == 1 and 64 <= past <= 8192]
    assert max(short) - min(short) > 2.0
    at_one = draft.operations["hca_decode.vllm.v4-flash.tp8"].values[0]
    assert abs(at_one - float(np.median(short))) < 1.0


def test_several_chunks_in_a_step_add_up_to_the_batched_rows(published: Source, draft: Draft) -> None:
    """The tables hold batches of equal chunks, which the formula over single chunks never saw."""
    flash = SHAPES[0]
    table = draft.table("sparse_attention", "sglang", "0.5.14", "dsv4_csa_context_module_perf")
    rows = table.where(model=model_label(table, flash), tp_size=1, gemm_type="fp8_block")
    scores = topk_table(draft, flash)
    axes = ("batch_size", "isl", "step")
    flat = scores.where(score_mode="v1_flat").groups(*axes)
    real = scores.where(score_mode="v1_top_last").groups(*axes)
    attention = AttentionCost(load_profile("b200"), resolve(Deployment()), spec("v4-flash"))
    errors = []
    for (batch, new, past), us in rows.groups(*axes).items():
        key = (batch, new, past)
        if 2 <= batch <= 8 and 64 <= new * batch <= 16_384 and new >= 16 and key in flat:
            parts = attention.prefill_parts(((new, past),) * batch)
            predicted = (parts.scan + parts.topk + parts.other) / attention.n_csa / 1e3
            errors.append(predicted / (us - flat[key] + real[key]) - 1)
    assert len(errors) > 400
    assert abs(float(np.median(errors))) < 0.05
    assert float(np.median(np.abs(errors))) < 0.06
    assert float(np.quantile(np.abs(errors), 0.9)) < 0.25


def test_marlin_takes_tiles_of_64_rows_an_expert(published: Source) -> None:
    """The law the composition rests on, in the kernel's own rows: another tile is another step of time."""
    rows = published.table("h200", "moe", "sglang", "0.5.14", "moe_perf").where(
        moe_dtype="int4_wo", num_experts=384, moe_tp_size=4, moe_ep_size=1, distribution="balanced"
    )
    us = {tokens: value for (tokens,), value in rows.groups("num_tokens").items()}
    # 64 rows an expert are 3,072 tokens: one tile more at 4,096 (85 rows), none at 6,144 (128).
    assert us[4096] / us[3072] > 1.7
    assert us[6144] / us[4096] < 1.15
    profile = load_profile("h200")
    fp8 = profile.operation("moe.fp8.sglang.v4-flash.tp4ep1").line()
    marlin = profile.operation("moe.marlin.all.v4-flash.tp4ep1").line()
    assert 1.7 < marlin.at(4096) / fp8.at(4096) < 2.3, "BF16 math and padding against FP8"
    assert marlin.at(16) < fp8.at(16), "half the weights"


def test_gathered_keys_are_scanned_faster_than_pages(published: Source) -> None:
    """One kernel over keys in one piece (GLM-5, half the heads), one over pages (V4), on one GPU."""
    tables = [
        published.table("b200", "sparse_attention", "sglang", "0.5.14", name).where(batch_size=1, isl=8192)
        for name in ("glm5_mqa_logits_module_perf", "dsv4_paged_mqa_logits_module_perf")
    ]
    glm, paged = (table.groups("step") for table in tables)
    pieces = 2 * glm[(131_072,)] / (131_072 + 4096)
    pages = paged[(524_288,)] / ((524_288 + 4096) / 4)
    assert 0.70 < pieces / pages < 0.85
    profile = load_profile("b200")
    own = profile.operation("index_scan_prefill.vllm.v4-flash").at(new_tokens=8192, past_tokens=524_288)
    assert own == pytest.approx(pieces * (524_288 + 4096) / 4, rel=0.05)


def test_the_host_bounds_small_eager_experts_whatever_the_gpu(published: Source) -> None:
    """At few tokens the time does not depend on how many experts a rank holds: it is launches."""
    table = published.table("h200", "moe", "sglang", "0.5.10", "wideep_context_moe_perf")
    floors = [
        min(table.where(distribution="uniform", moe_ep_size=ep).groups("num_tokens").values())
        for ep in (4, 16, 64, 256)
    ]
    assert max(floors) / min(floors) < 1.05
    launch = load_profile("h200").operation("eager_launch.sglang")
    assert launch.term("per_operation") == pytest.approx(float(np.mean(floors)) / 10, rel=0.3)
    for name in ("eager_launch.sglang", "eager_launch.vllm"):
        other = load_profile("b200").operation(name)
        assert launch.term("per_operation") == other.term("per_operation")
