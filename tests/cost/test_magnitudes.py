"""Magnitudes against published module times and their arithmetic; the laws are in test_cost_laws.

Published figures: aiconfigurator 0.12.0 tables (SGLang 0.5.14), microseconds a layer. Long-context decode
may exceed them by the HBM leg of the index scan, which the L2-resident tables do not show; CSA prefill lies
below them by the top-k on tied dummy scores.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from v4sim.cost import Profile, RankLoad, StepCost
from v4sim.cost.base import PART_INDEX

Compile = Callable[..., StepCost]
PASTS = (1, 131_072, 262_144, 524_288, 1_048_575)
CSA_DECODE = {
    ("b200", "v4-flash", 1): (88, 102, 104, 110, 118),
    ("b200", "v4-flash", 4): (62, 77, 80, 86, 98),
    ("b200", "v4-pro", 8): (73, 92, 95, 101, 109),
    ("h200", "v4-flash", 1): (103, 115, 117, 121, 130),
    ("h200", "v4-flash", 4): (76, 88, 90, 94, 102),
    ("h200", "v4-pro", 8): (89, 104, 105, 110, 118),
}
HCA_DECODE = {
    ("b200", "v4-flash", 4): (54, 59, 63, 72, 90),
    ("b200", "v4-pro", 8): (56, 63, 68, 78, 96),
    ("h200", "v4-flash", 4): (58, 62, 66, 73, 81),
    ("h200", "v4-pro", 8): (69, 73, 76, 84, 91),
}
ATTENTION = ("index_scan", "topk", "attention_other", "hca", "swa")


@pytest.mark.parametrize("key", sorted(CSA_DECODE))
def test_csa_decode_repeats_the_published_module(key: tuple[str, str, int], compiled: Compile) -> None:
    gpu, model, tp = key
    layers = 21 if model == "v4-flash" else 30
    cost = compiled(gpu=gpu, model=model, tp=tp, dp=1, ep=1)
    for past, published in zip(PASTS, CSA_DECODE[key], strict=True):
        parts = cost.step([RankLoad(1, past, past)], 1, "decode")
        csa = sum(parts[PART_INDEX[p]] for p in ("index_scan", "topk", "attention_other"))
        assert csa / layers / 1e3 == pytest.approx(published, rel=0.06)


@pytest.mark.parametrize("key", sorted(HCA_DECODE))
def test_hca_decode_repeats_the_published_module(key: tuple[str, str, int], compiled: Compile) -> None:
    gpu, model, tp = key
    layers = 20 if model == "v4-flash" else 31
    cost = compiled(gpu=gpu, model=model, tp=tp, dp=1, ep=1)
    for past, published in zip(PASTS, HCA_DECODE[key], strict=True):
        hca = cost.step([RankLoad(1, past, past)], 1, "decode")[PART_INDEX["hca"]]
        assert hca / layers / 1e3 == pytest.approx(published, rel=0.06)


def test_decode_attention_of_flash_tp4_on_b200(compiled: Compile) -> None:
    """2.5 ms at 1K and 3.9 ms at 1M for all layers of a step."""
    cost = compiled(tp=4, dp=1, ep=1)

    def attention_ms(ctx: int) -> float:
        parts = cost.step([RankLoad(1, ctx, ctx)], 1, "decode")
        return sum(parts[PART_INDEX[p]] for p in ATTENTION) / 1e6

    assert attention_ms(1024) == pytest.approx(2.5, rel=0.05)
    assert attention_ms(1_048_576) == pytest.approx(3.9, rel=0.05)


def test_the_tied_score_hump_is_gone(profiles: Callable[[str], Profile], compiled: Compile) -> None:
    """Tables: 156 us at a past of 4K to 65K between 92 and 102 around it. Here: a gentle rise."""
    cost = compiled(tp=1, dp=1, ep=1)
    csa = {}
    for past in (2048, 3072, 8192, 32_768, 65_536, 131_072):
        parts = cost.step([RankLoad(1, past, past)], 1, "decode")
        csa[past] = sum(parts[PART_INDEX[p]] for p in ("index_scan", "topk", "attention_other")) / 21e3
    times = list(csa.values())
    assert times == sorted(times)
    assert times[-1] < 1.15 * times[0]
    assert all(t < 105 for t in times)


def test_the_scan_pays_hbm_bytes_and_not_the_l2_slope_of_the_tables(
    profiles: Callable[[str], Profile],
) -> None:
    for gpu, low, high in (("b200", 6.2, 6.8), ("h200", 3.9, 4.28)):
        scan = profiles(gpu).operation("index_scan.v4-flash.fp8")
        assert low <= 132 / scan.term("hbm") / 1e6 <= high, "TB/s: Table A"
        assert scan.term("hbm") > scan.term("matrix"), "width 1 is bound by memory"
    fp4 = profiles("b200").operation("index_scan.v4-flash.fp4")
    fp8 = profiles("b200").operation("index_scan.v4-flash.fp8")
    assert fp4.term("hbm") / fp8.term("hbm") == pytest.approx(68 / 132, rel=1e-3)
    assert not profiles("h200").has("index_scan.v4-flash.fp4"), "FP4 logits need Blackwell"


@pytest.mark.parametrize(
    ("gpu", "model", "published"),
    [
        ("b200", "v4-flash", (1.75, 3.20, 4.66, 7.60, 12.9)),
        ("h200", "v4-flash", (3.12, 5.61, 8.11, 13.2, 22.5)),
        ("b200", "v4-pro", (3.37, 5.97, 8.66, 14.0, 23.9)),
        ("h200", "v4-pro", (6.81, 11.1, 15.7, 24.9, 41.5)),
    ],
)
def test_hca_prefill_of_8192_tokens(
    gpu: str, model: str, published: tuple[float, ...], profiles: Callable[[str], Profile]
) -> None:
    operation = profiles(gpu).operation(f"hca_prefill.sglang.{model}.tp1")
    for past, ms in zip((0, 131_072, 262_144, 524_288, 1_000_000), published, strict=True):
        assert operation.at(new_tokens=8192, past_tokens=past) / 1e3 == pytest.approx(ms, rel=0.06)


@pytest.mark.parametrize(
    ("gpu", "model", "published"),
    [
        ("b200", "v4-flash", (2.96, 6.71, 10.6, 17.9, 31.1)),
        ("h200", "v4-flash", (4.97, 11.3, 17.1, 28.7, 49.7)),
        ("b200", "v4-pro", (5.97, 10.1, 13.3, 20.5, 33.1)),
        ("h200", "v4-pro", (11.3, 18.0, 23.7, 34.7, 55.1)),
    ],
)
def test_csa_prefill_of_8192_tokens_lies_below_the_tied_score_tables(
    gpu: str, model: str, published: tuple[float, ...], profiles: Callable[[str], Profile]
) -> None:
    names = (f"csa_prefill.sglang.{model}.tp1", f"index_scan_prefill.{model}", f"topk_prefill.{model}")
    for past, ms in zip((0, 131_072, 262_144, 524_288, 1_000_000), published, strict=True):
        parts = [profiles(gpu).operation(n).at(new_tokens=8192, past_tokens=past) for n in names]
        assert 0.85 * ms <= sum(parts) / 1e3 <= 1.01 * ms


def test_a_verify_step_of_flash_tp4_is_the_sum_of_its_kernels(compiled: Compile) -> None:
    """B200, MTP 3 at one call: kernels alone give 7 to 8 ms, of which attention is 40 %."""
    parts = compiled(tp=4, dp=1, ep=1, spec=("mtp", 3)).step([RankLoad(1, 4300, 4300)], 4, "decode")
    attention = sum(parts[PART_INDEX[p]] for p in ATTENTION)
    assert 6.5e6 < sum(parts) < 8.5e6
    assert 0.3 < attention / sum(parts) < 0.5
