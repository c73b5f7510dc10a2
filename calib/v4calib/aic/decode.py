"""CSA and HCA decode modules: what remains after index scan and top-k are taken out.

The tables time one whole module (projections, compressor, indexer, attention) for a batch at one past
length, TP simulated on one GPU without collectives (trap 4). Corrections and splits, per row:

* SGLang's CSA rows ran top-k on tied dummy scores, which costs 48 to 82 us too much for a past of 3K to 65K
  (trap 2): the calibration table's flat minus realistic time of the same row is subtracted.
* The scan and the realistic top-k of the same row are subtracted: they are operations of their own.
* The rest grows with the entries a query attends to, up to top-k: a(tokens) + b(tokens) x fill, fill =
  min(context, 4 top-k) / (4 top-k). It is fitted over all past lengths of a batch size, which also
  averages the 2 us steps of vLLM's tables.

HCA attends to every entry. For one sequence the time grows with its own length, not with the sum over
the batch (few CTAs work on a query), so the context curve is a function of the longest context; how fast a
GPU does it when all SMs are busy is FlashMLA's published rate, or the bytes over HBM, whichever is slower.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from v4calib.aic.draft import Draft
from v4calib.aic.indexer import MAX_TOKENS, model_label, topk_table
from v4calib.aic.shapes import SGLANG, SHAPES, TPS, VLLM, Shape
from v4calib.curves import interpolate, rising, thin
from v4sim.model.hardware import gpu as gpu_spec

Rows = dict[tuple[int, int], float]
VERSIONS = {"sglang": SGLANG, "vllm": VLLM}
WINDOW = 64  # shorter contexts do not fill the sliding window and are not used
_SPLIT_PAST = 32_768  # beyond it only single sequences were run
_FLASHMLA_TFLOPS = {"blackwell": 350.0, "hopper": 410.0}  # README: B200 sparse decode, H800 sparse decode
_KEYS = ("batch_size", "step")


def module_rows(draft: Draft, engine: str, kind: str, phase: str, shape: Shape, tp: int) -> Rows:
    """(batch, past) or (isl, past) to microseconds of one module table, block-FP8 weights."""
    version = VERSIONS[engine]
    table = draft.table("sparse_attention", engine, version, f"dsv4_{kind}_{phase}_module_perf")
    picked = table.where(model=model_label(table, shape), tp_size=tp, gemm_type="fp8_block")
    if phase == "generation":
        return picked.pairs(*_KEYS)
    return picked.where(batch_size=1).pairs("isl", "step")


def module_source(draft: Draft, engine: str, phase: str) -> str:
    version = VERSIONS[engine]
    kernel = "compressed_flashmla" if engine == "sglang" else "FLASHMLA_SPARSE_DSV4"
    return draft.published(
        f"aic.{engine}.{phase}",
        f"sparse_attention/{engine}/{version}/dsv4_(csa|hca)_{phase}_module_perf, fp8_block",
        {engine: version},
        kernel,
    )


def add_decode(draft: Draft) -> None:
    scan = draft.table("sparse_attention", "sglang", SGLANG, "dsv4_paged_mqa_logits_module_perf")
    scan_rows: Rows = scan.where(isl=1).pairs(*_KEYS)
    for shape in SHAPES:
        table = topk_table(draft, shape).where(isl=1)
        flat: Rows = table.where(score_mode="v2_flat").pairs(*_KEYS)
        real: Rows = table.where(score_mode="v2_top_last").pairs(*_KEYS)
        tails: list[float] = []
        for engine in VERSIONS:
            for tp in TPS:
                rows = module_rows(draft, engine, "csa", "generation", shape, tp)
                if engine == "sglang":
                    rows = {k: v - (flat[k] - real[k]) for k, v in rows.items() if k in flat and k in real}
                parts = {k: scan_rows[k] + real[k] for k in rows if k in scan_rows and k in real}
                rest = {k: rows[k] - parts[k] for k in parts}
                _add_csa(draft, engine, shape, tp, rest, parts)
                if engine == "sglang":
                    tails.append(_tail(rest))
                hca = module_rows(draft, engine, "hca", "generation", shape, tp)
                _add_hca(draft, engine, shape, tp, hca)
        source = module_source(draft, "sglang", "generation")
        draft.add_fit(
            f"csa_tail.{shape.name}",
            {"ctx_max": (131_072, MAX_TOKENS)},
            [("per_token", float(np.median(tails)), ("ctx_max",))],
            "sum",
            source,
            "growth of the CSA module with context that neither scan nor top-k accounts for, one sequence",
            assumed=0.5,
        )
        _add_hca_context(draft, shape, source)


def _tail(rest: Rows) -> float:
    long = [(past, us) for (batch, past), us in rest.items() if batch == 1 and past >= 131_072]
    (p0, u0), (p1, u1) = long[0], long[-1]
    return max((u1 - u0) / (p1 - p0), 0.0)


def _add_csa(draft: Draft, engine: str, shape: Shape, tp: int, rest: Rows, parts: Rows) -> None:
    sat = shape.saturation_tokens
    base: dict[int, float] = {}
    grown: dict[int, float] = {}
    held: list[tuple[int, int, float]] = []
    for batch in sorted({b for b, _ in rest}):
        usable = [(p, us) for (b, p), us in rest.items() if b == batch and WINDOW <= p <= _SPLIT_PAST]
        picked = usable[::2]  # the others are held out
        held += [(batch, p, us) for p, us in usable[1::2]]
        if len(picked) < 2:
            continue
        fill = np.array([min(p, sat) / sat for p, _ in picked])
        times = np.array([v for _, v in picked])
        design = np.stack([np.ones_like(fill), fill], axis=1)
        solution = np.linalg.lstsq(design, times, rcond=None)[0]
        a, b = float(solution[0]), float(solution[1])
        if max(p for p, _ in usable) < sat and batch // 2 in grown:
            # Memory ends the table before the selection is full: per-sequence growth of half the batch.
            b = 2 * (grown[batch // 2] - base[batch // 2])
        base[batch] = a
        grown[batch] = a + max(b, 0.0)
    tokens = sorted(base)
    low, high = rising([base[t] for t in tokens]), rising([grown[t] for t in tokens])
    name = f"csa_decode.{engine}.{shape.name}.tp{tp}"
    draft.add_table(
        name,
        {"tokens": tokens, "fill": [0.0, 1.0]},
        list(zip(low, high, strict=True)),
        module_source(draft, engine, "generation"),
        "CSA module without scan and top-k; tied-score hump removed"
        if engine == "sglang"
        else "CSA module without scan and top-k (SGLang's scan and top-k tables)",
    )
    for batch, past, us in held:
        if batch in base:
            share = min(past, sat) / sat
            guess = base[batch] + (grown[batch] - base[batch]) * share
            draft.compare(name, guess + parts[batch, past], us + parts[batch, past])


def _add_hca(draft: Draft, engine: str, shape: Shape, tp: int, rows: Rows) -> None:
    flat = {}
    for batch in sorted({b for b, _ in rows}):
        short = [us for (b, p), us in rows.items() if b == batch and WINDOW <= p <= 8192]
        flat[batch] = float(np.median(short))
    points, values = thin(flat)
    name = f"hca_decode.{engine}.{shape.name}.tp{tp}"
    draft.add_table(
        name,
        {"tokens": points},
        values,
        module_source(draft, engine, "generation"),
        "HCA module at short context; also stands for layers with a sliding window alone",
    )
    for (batch, past), us in rows.items():
        if WINDOW <= past <= 8192:
            draft.compare(name, interpolate(points, values, batch), us)


def _add_hca_context(draft: Draft, shape: Shape, source: str) -> None:
    curves: dict[int, list[float]] = {}
    rows_of = {tp: module_rows(draft, "sglang", "hca", "generation", shape, tp) for tp in TPS}
    starts = {tp: _short(rows) for tp, rows in rows_of.items()}
    for tp, rows in rows_of.items():
        for (batch, past), us in rows.items():
            if batch == 1 and past >= 16_384:
                curves.setdefault(past, []).append(us - starts[tp])
    curve: Mapping[int, float] = {p: max(float(np.median(v)), 0.0) for p, v in curves.items()}
    points = [0, 8192, *sorted(curve)]
    values = rising([0.0, 0.0, *(curve[p] for p in sorted(curve))])
    name = f"hca_context.{shape.name}"
    draft.add_table(
        name,
        {"ctx_max": points},
        values,
        source,
        "added to hca_decode by the longest sequence; the same for every TP, heads are padded",
    )
    for tp, rows in rows_of.items():
        for (batch, past), us in rows.items():
            if batch == 1 and past >= 16_384:
                draft.compare(name, starts[tp] + interpolate(points, values, past), us)
    device = gpu_spec(draft.gpu)
    rate = _FLASHMLA_TFLOPS[device.arch]
    flops = 4 * max(shape.heads, 64) * shape.head_dim / 128
    roofline = draft.other(
        "flashmla.readme",
        "roofline",
        "FlashMLA README at 9241ae3: sparse FP8 decode 350 TFLOPS on B200, 410 on H800; hbm_stream",
    )
    draft.add_fit(
        f"hca_saturated.{shape.name}",
        {"context": (1, 8 * MAX_TOKENS), "token_context": (1, 64 * MAX_TOKENS)},
        [
            ("compute", flops / (rate * 1e6), ("token_context",)),
            ("hbm", 584 / 128 * draft.operations["hbm_stream"].term("per_byte"), ("context",)),
        ],
        "max",
        roofline,
        "all SMs busy: context summed over sequences, and over query tokens",
        assumed=0.3,
    )


def _short(rows: Rows) -> float:
    return float(np.median([us for (b, p), us in rows.items() if b == 1 and 1024 <= p <= 8192]))
