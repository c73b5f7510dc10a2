"""V4.1-Flash, of which no kernel table exists: composed from V4-Flash and V4-Pro by work and bytes.

Every operation here says `roofline` and carries an assumed error of 30 %. Above its launch floor (the table's
smallest value) an operation scales with

    attention rest     dense attention parameters of a layer, against V4-Flash (same heads, same top-k)
    index scan         index heads (32 against 64); keys are FP4 only
    top-k              nothing: 512 of the same scores
    mHC                hidden size, between the two tables
    routed experts     parameters of one expert, against V4-Pro (384 experts, 6 active, as here)
    DeepEP             hidden size, against V4-Pro

Dense GEMMs are read off the GEMM grid itself. Not modelled: latent compressors and Engram look-ups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from v4calib.aic.dense import Gemms
from v4calib.aic.draft import Draft
from v4calib.aic.shapes import SGLANG, TPS
from v4sim.cost.operation import Operation
from v4sim.model import ModelSpec, spec

MODEL = "v4.1-flash"
_ERROR = 0.3


def add_composed_model(draft: Draft) -> None:
    """All operations of V4.1-Flash that the deployment of this GPU may ask for."""
    own, flash, pro = spec(MODEL), spec("v4-flash"), spec("v4-pro")
    source = draft.other(
        "composed.v4.1-flash",
        "roofline",
        "no table of V4.1-Flash: V4-Flash and V4-Pro tables, scaled above their floor by parameters, index "
        "heads and hidden size",
    )
    attention = own.dense_attention_params / flash.dense_attention_params
    for operation in list(draft.operations.values()):
        family = operation.name.split(".", 1)[0]
        if ".v4-flash" in operation.name:
            share = {
                "csa_decode": attention,
                "csa_prefill": attention,
                "hca_decode": attention,
                "hca_prefill": attention,
                "csa_prefill_share": 1.0,
                "csa_tail": 1.0,
                "topk_decode": 1.0,
                "topk_prefill": 1.0,
                "topk_rate": 1.0,
                "index_scan_prefill": own.index.heads / flash.index.heads,
            }.get(family)
            if share is not None:
                _scaled(draft, operation, "v4-flash", share, source)
        elif ".v4-pro" in operation.name:
            share = {
                "moe": own.expert_params / pro.expert_params,
                "megamoe": own.expert_params / pro.expert_params,
                "deepep_ll": own.hidden / pro.hidden,
                "deepep_normal": own.hidden / pro.hidden,
            }.get(family)
            if share is not None:
                _scaled(draft, operation, "v4-pro", share, source)
    _add_scan(draft, own, flash, source)
    _add_mhc(draft, own, flash, pro, source)
    _add_gemms(draft, own)


def _scaled(draft: Draft, operation: Operation, origin: str, share: float, source: str) -> None:
    name = operation.name.replace(origin, MODEL)
    if operation.unit == "share":
        axis = operation.axes[0]
        draft.add_table(
            name, {axis.name: axis.points}, operation.values, source, operation.note, _ERROR, "share"
        )
        return
    if operation.terms:
        axes = {a.name: (a.points[0], a.points[-1]) for a in operation.axes}
        terms = [(t.name, t.coefficient * share, t.axes) for t in operation.terms]
        draft.add_fit(name, axes, terms, operation.combine, source, operation.note, _ERROR)
        return
    floor = _smallest(operation.values)
    values = _above(operation.values, floor, share)
    draft.add_table(name, {a.name: a.points for a in operation.axes}, values, source, operation.note, _ERROR)


def _smallest(values: Sequence[Any]) -> float:
    return min(_smallest(v) if isinstance(v, tuple) else float(v) for v in values)


def _above(values: Sequence[Any], floor: float, share: float) -> list[Any]:
    return [_above(v, floor, share) if isinstance(v, tuple) else floor + (v - floor) * share for v in values]


def _add_scan(draft: Draft, own: ModelSpec, flash: ModelSpec, source: str) -> None:
    base = draft.operations["index_scan.v4-flash.fp8"]
    heads = own.index.heads / flash.index.heads
    stream = draft.operations["hbm_stream"].term("per_byte")
    for dtype, width in own.index.bytes.items():
        draft.add_fit(
            f"index_scan.{MODEL}.{dtype}",
            {a.name: (a.points[0], a.points[-1]) for a in base.axes},
            [
                ("hbm", width * stream, ("entries",)),
                ("matrix", base.term("matrix") * heads, ("pairs",)),
                ("head_sum", base.term("head_sum") * heads, ("pairs",)),
            ],
            "max",
            source,
            "above the floor; legs of V4-Flash scaled by index heads",
            _ERROR,
        )


def _add_mhc(draft: Draft, own: ModelSpec, flash: ModelSpec, pro: ModelSpec, source: str) -> None:
    share = (own.hidden - flash.hidden) / (pro.hidden - flash.hidden)
    for engine in ("sglang", "vllm"):
        low = draft.operations[f"mhc.{engine}.v4-flash"]
        high = draft.operations[f"mhc.{engine}.v4-pro"].line()
        points = low.axes[0].points
        values = [v + (high.at(p) - v) * share for p, v in zip(points, low.values, strict=True)]
        draft.add_table(
            f"mhc.{engine}.{MODEL}", {"tokens": points}, values, source, "both calls of a layer", _ERROR
        )


def _add_gemms(draft: Draft, own: ModelSpec) -> None:
    table = draft.table("gemm", "sglang", SGLANG, "gemm_perf")
    bf16, fp8 = Gemms(table, "bfloat16"), Gemms(table, "fp8_block")
    h, inter = own.hidden, own.moe.intermediate
    for tp in TPS:
        head = bf16.curve(own.vocab // tp, h)
        Gemms.add(draft, f"lm_head.{MODEL}.tp{tp}", head, "BF16, vocabulary cut over TP, no collective")
        gate, down = fp8.curve(2 * inter // tp, h), fp8.curve(h, inter // tp)
        shared = {m: gate[m] + down[m] for m in gate}
        Gemms.add(draft, f"shared_expert.{MODEL}.tp{tp}", shared, "block FP8: gate and up, then down")
    Gemms.add(draft, f"mtp_projection.{MODEL}", fp8.curve(h, 2 * h), "block FP8: embedding and hidden to h")
