"""Routed experts by backend, number format and cut (TP x EP), over the tokens of the whole expert group.

Tables exist for flashinfer's MXFP4 x MXFP8 kernel (SGLang and vLLM, Blackwell) and for block-FP8 experts.
Rows with EP carry the load of the busiest rank; the skew taken is the power law 1.2 that gives the
published EP imbalance (1.4x at 512 tokens a rank, 1.8x at 8192), without EP the milder 1.01.

MegaMoE (dispatch, both GEMMs and combine in one kernel, tokens per rank): GB200 and GB300 have a table of
V4-Pro. Elsewhere and for V4-Flash it is composed: DeepGEMM PR #316 gives balanced EP8 times at 1, 512, 8192
and 32768 tokens a rank; between 1 and 512 they follow the distinct experts hit, the imbalance is the GB200
table's ratio, and other EP sizes add or save the weight bytes of the experts a rank holds. (B200's own table
is of another model and not used.)

Marlin (FP4 weights, BF16 math on Hopper) has no table of these shapes, but one of the same kernel with 4-bit
weights of DeepSeek-V3's shape with 384 experts. Above the launch floor its time goes by weights and by the
rows an expert gets: bytes of the experts hit while rows are few, then tiles of 64 rows, padding and all. So
a row of that table with as many rows an expert, scaled by the weights, is the answer; between its cuts the
time of a weight is interpolated over 1 / width of an expert's cut: narrow cuts are slower.
Residuals: the same composition against the kernel's rows of DeepSeek-V3 and Qwen3 shapes (version 0.5.10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from v4calib.aic.draft import DEVICE, Draft
from v4calib.aic.shapes import SGLANG, SHAPES, VLLM, Shape
from v4calib.aic.source import Table
from v4calib.curves import interpolate, rising, thin
from v4sim.model.hardware import gpu as gpu_spec

_SKEW = "power_law_1.2"
_MILD = "power_law_1.01"
_FORMATS = {"mxfp4": "w4a8_mxfp4_mxfp8", "fp8": "fp8_block"}
_TP = (1, 2, 4, 8)
_EP = (1, 2, 4, 8, 16, 32)
_MEGA = "0.5.10"
_MEGA_EP = (4, 8, 16, 32)
_PR316 = {
    "v4-flash": {1: 56.5, 512: 146.5, 8192: 1283.0, 32_768: 4856.0},
    "v4-pro": {1: 108.1, 512: 369.6, 8192: 2818.0, 32_768: 10_655.0},
}
_MARLIN_TOKENS = (
    *(1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192),
    *(12_288, 16_384),
)
_MEGA_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768)


def add_moe(draft: Draft) -> None:
    for engine, version in (("sglang", SGLANG), ("vllm", VLLM)):
        table = draft.table("moe", engine, version, "moe_perf")
        for fmt, dtype in _FORMATS.items():
            rows = table.where(moe_dtype=dtype)
            for shape in SHAPES:
                _add_tables(draft, engine, version, fmt, shape, _of(rows, shape))


def _of(table: Table, shape: Shape) -> Table:
    return table.where(
        hidden_size=shape.hidden,
        inter_size=shape.intermediate,
        topk=shape.active,
        num_experts=shape.experts,
    )


def _add_tables(draft: Draft, engine: str, version: str, fmt: str, shape: Shape, rows: Table) -> None:
    if not len(rows):
        return
    kernels = sorted({str(k) for k in rows["kernel_source"]})
    source = draft.published(
        f"aic.{engine}.moe.{fmt}",
        f"moe/{engine}/{version}/moe_perf, {_FORMATS[fmt]}",
        {engine: version},
        ", ".join(kernels),
    )
    for tp in _TP:
        for ep in _EP:
            skew = _SKEW if ep > 1 else _MILD
            cut = rows.where(moe_tp_size=tp, moe_ep_size=ep, distribution=skew)
            if not len(cut) or tp * ep > 32:
                continue
            curve = {t: us for (t,), us in cut.groups("num_tokens").items()}
            name = f"moe.{fmt}.{engine}.{shape.name}.tp{tp}ep{ep}"
            points, values = thin(curve, 0.02)
            note = f"tokens of the whole group, {skew}"
            draft.add_table(name, {"tokens": points}, values, source, note)
            for tokens, us in curve.items():
                if tokens not in points:
                    draft.compare(name, interpolate(points, values, tokens), us)


def _hit(shape: Shape, tokens: float) -> float:
    """Share of the experts that at least one of the tokens chose, uniform routing."""
    return float(1.0 - (1.0 - shape.active / shape.experts) ** tokens)


def add_megamoe(draft: Draft) -> None:
    if gpu_spec(draft.gpu).arch != "blackwell":
        return
    table = draft.source.table("gb200", "moe", "sglang", _MEGA, "dsv4_megamoe_module_perf")
    for shape in SHAPES:
        own = None
        if draft.has("moe", "sglang", _MEGA, "dsv4_megamoe_module_perf"):
            mine = draft.table("moe", "sglang", _MEGA, "dsv4_megamoe_module_perf")
            own = _of(mine, shape)
        for ep in _MEGA_EP:
            measured = _mega_rows(own, ep, _SKEW) if own is not None and len(own) else {}
            if measured:
                _add_measured_mega(draft, shape, ep, measured)
            else:
                _add_composed_mega(draft, shape, ep, _of(table, SHAPES[1]))


def _mega_rows(rows: Table, ep: int, skew: str) -> dict[int, float]:
    picked = rows.where(moe_ep_size=ep, distribution=skew)
    return {t: us for (t,), us in picked.groups("num_tokens").items()}


def _add_measured_mega(draft: Draft, shape: Shape, ep: int, curve: Mapping[int, float]) -> None:
    source = draft.published(
        "aic.megamoe",
        f"moe/sglang/{_MEGA}/dsv4_megamoe_module_perf, {_SKEW}",
        {"sglang": _MEGA},
        "DeepGEMM MegaMoE",
    )
    name = f"megamoe.{shape.name}.ep{ep}"
    points, values = thin(dict(curve), 0.02)
    draft.add_table(
        name, {"tokens": points}, values, source, "tokens of one rank, dispatch and combine in it"
    )
    for tokens, us in curve.items():
        if tokens not in points:
            draft.compare(name, interpolate(points, values, tokens), us)


def _add_composed_mega(draft: Draft, shape: Shape, ep: int, reference: Table) -> None:
    source = draft.other(
        "deepgemm.pr316",
        "published",
        "DeepGEMM PR #316, MegaMoE FP8xFP4, EP8, balanced (SM100, GPU not named); imbalance and curve "
        f"composed from the {DEVICE['gb200']} table of aiconfigurator",
    )
    skewed, balanced = _mega_rows(reference, 8, _SKEW), _mega_rows(reference, 8, "balanced")
    stated = _PR316[shape.name]
    marks = sorted(stated)
    stream = draft.operations["hbm_stream"].term("per_byte")
    curve = {}
    for tokens in _MEGA_TOKENS:
        if tokens <= 512:
            low, high = _hit(shape, 8), _hit(shape, 8 * 512)
            share = (_hit(shape, 8 * tokens) - low) / (high - low)
            us = stated[1] + (stated[512] - stated[1]) * share
        else:
            us = interpolate(marks, [stated[m] for m in marks], tokens)
        here = shape.experts / ep * _hit(shape, ep * tokens)
        there = shape.experts / 8 * _hit(shape, 8 * tokens)
        us += (here - there) * shape.expert_bytes_mxfp4() * stream
        curve[tokens] = us * max(skewed[tokens] / balanced[tokens], 1.0)
    points, values = thin(curve, 0.02)
    draft.add_table(
        f"megamoe.{shape.name}.ep{ep}",
        {"tokens": points},
        values,
        source,
        "tokens of one rank, dispatch and combine in it; composed",
        assumed=0.25,
    )


@dataclass(frozen=True, slots=True)
class _Marlin:
    """Published rows of one expert shape and EP size: microseconds over tokens, by the width of a cut."""

    shape: Shape
    ep: int
    curves: Mapping[float, Mapping[int, float]]

    def us(self, hidden: int, width: float, experts: int, rows: float) -> float:
        """A layer of `experts` experts of hidden x width on each GPU's share, each with `rows` tokens."""
        marks = sorted(self.curves, reverse=True)  # wide to narrow: ascending in 1 / width
        inverse = [1 / mark for mark in marks]
        at = min(max(1 / width, inverse[0]), inverse[-1])
        floor = interpolate(inverse, [self._floor(mark) for mark in marks], at)
        each = interpolate(inverse, [self._per_weight(mark, rows) for mark in marks], at)
        return floor + each * experts * hidden * width

    def _floor(self, width: float) -> float:
        curve = self.curves[width]
        return max(2 * curve[1] - curve[2], 0.0)

    def _per_weight(self, width: float, rows: float) -> float:
        curve, shape = self.curves[width], self.shape
        points = sorted(curve)
        us = interpolate(points, [curve[p] for p in points], rows * shape.experts / shape.active)
        return max(us - self._floor(width), 0.0) / (shape.experts * shape.hidden * width)


_MARLIN = Shape("v3-384", "", 7168, 128, 2048, 384, 2048, active=8)
_MARLIN_OTHERS = (
    Shape("v3", "", 7168, 128, 2048, 256, 2048, active=8),
    Shape("qwen3-235b", "", 4096, 64, 0, 128, 1536, active=8),
)
_MARLIN_OTHERS_VERSION = "0.5.10"


def add_marlin(draft: Draft) -> None:
    if gpu_spec(draft.gpu).arch != "hopper":
        return
    table = draft.table("moe", "sglang", SGLANG, "moe_perf").where(moe_dtype="int4_wo")
    source = draft.published(
        "aic.sglang.moe.marlin",
        f"moe/sglang/{SGLANG}/moe_perf, int4_wo, DeepSeek-V3 shape with 384 experts",
        {"sglang": SGLANG},
        "sglang_marlin_moe",
    )
    for ep in _EP:
        marlin = _Marlin(_MARLIN, ep, _marlin_curves(table, _MARLIN, ep))
        if not marlin.curves:
            continue
        for shape in SHAPES:
            for tp in _TP:
                width = shape.intermediate / tp
                curve = {
                    t: marlin.us(shape.hidden, width, shape.experts, t * shape.active / shape.experts)
                    for t in _MARLIN_TOKENS
                }
                points, values = thin(curve, 0.02)
                name = f"moe.marlin.all.{shape.name}.tp{tp}ep{ep}"
                note = f"tokens of the whole group, {_skew(ep)}; composed from another shape"
                draft.add_table(name, {"tokens": points}, rising(values), source, note, assumed=0.3)
        if ep == 1:  # what the older version's rows with EP count is not stated
            _compare_marlin(draft, marlin)


def _compare_marlin(draft: Draft, marlin: _Marlin) -> None:
    table = draft.table("moe", "sglang", _MARLIN_OTHERS_VERSION, "moe_perf").where(moe_dtype="int4_wo")
    for other in _MARLIN_OTHERS:
        for width, rows in _marlin_curves(table, other, 1).items():
            for tokens, us in rows.items():
                guess = marlin.us(other.hidden, width, other.experts, tokens * other.active / other.experts)
                for shape in SHAPES:
                    cut = round(other.intermediate / width)
                    draft.compare(f"moe.marlin.all.{shape.name}.tp{cut}ep1", guess, us)


def _skew(ep: int) -> str:
    return _SKEW if ep > 1 else _MILD


def _marlin_curves(table: Table, shape: Shape, ep: int) -> dict[float, dict[int, float]]:
    found = {}
    for tp in _TP:
        cut = _of(table, shape).where(moe_tp_size=tp, moe_ep_size=ep, distribution=_skew(ep))
        if len(cut):
            found[shape.intermediate / tp] = {t: us for (t,), us in cut.groups("num_tokens").items()}
    return found
