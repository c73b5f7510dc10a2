"""Index scan (paged MQA logits) and top-k, as operations of their own.

Decode scan. Rows of the published table keep batch x context below 1M, so the FP8 keys (34.6 MB) stay in
L2 and the slope says nothing about HBM (trap 1 of the tables). What can be read off is the floor, and the
arithmetic leg: with 4 and 8 query tokens a sequence the slope per (token, entry) is the same as
with one, so it is the matrix pipe and the head sum, not the memory. The HBM leg is bytes of a key over
the bandwidth that weight streaming reaches on the same GPU (GEMM tables, m = 1): 132 bytes for FP8 keys,
68 for FP4 (trap 3). FP4 keys get the FP8 arithmetic leg: the FP32 head sum is the same work, and no table
has the FP4 matrix rate. The head-sum leg itself is a roofline: 64 heads x (ReLU, multiply-add) a pair, with
the clock that the vendor's dense peak implies and the SM count of the architecture.

Top-k. The calibration table has tied ("flat") and realistic ("top_last") scores; serving is top_last.
"""

from __future__ import annotations

import numpy as np

from v4calib.aic.draft import Draft
from v4calib.aic.shapes import SGLANG, SHAPES, Shape
from v4calib.aic.source import Table
from v4calib.curves import interpolate, rising, thin
from v4sim.model.hardware import gpu as gpu_spec

INDEX_BYTES = {"fp8": 132, "fp4": 68}
MAX_TOKENS = 1_048_576
_FLOPS_PER_CLOCK = {"hopper": 4096, "blackwell": 8192}  # BF16 dense, per SM
_SMS = {"hopper": 132, "blackwell": 148}


def bandwidth_bytes_per_us(draft: Draft) -> float:
    """HBM rate that m = 1 GEMMs reach when they stream at least half a gigabyte of weights."""
    gemm = draft.table("gemm", "sglang", SGLANG, "gemm_perf").where(m=1)
    rates = []
    for dtype, width in (("bfloat16", 2), ("fp8_block", 1)):
        rows = gemm.where(gemm_dtype=dtype)
        size = rows["n"].astype(np.float64) * rows["k"] * width
        rates += (size / rows["us"])[size >= 5e8 * width].tolist()
    return float(np.median(rates))


def add_bandwidth(draft: Draft, rate: float) -> None:
    source = draft.published(
        "aic.gemm", f"gemm/sglang/{SGLANG}/gemm_perf", {"sglang": SGLANG}, "m = 1 BF16 and FP8 GEMM"
    )
    draft.add_fit(
        "hbm_stream",
        {"bytes": (5e8, 1e11)},
        [("per_byte", 1.0 / rate, ("bytes",))],
        "sum",
        source,
        "median of the weight-streaming rates of m = 1 GEMMs",
        assumed=0.06,
    )


def add_scan(draft: Draft, rate: float) -> None:
    """`index_scan_floor` over query tokens, `index_scan.<model>.<dtype>` as the maximum of its legs."""
    table = draft.table("sparse_attention", "sglang", SGLANG, "dsv4_paged_mqa_logits_module_perf")
    floors: dict[int, list[float]] = {}
    rows = []
    for width in (1, 4, 8):
        for (batch, past), us in table.where(isl=width).groups("batch_size", "step").items():
            tokens = batch * width
            if past <= 512:
                floors.setdefault(tokens, []).append(us)
            rows.append((width, tokens, tokens * past / 4, us))
    floor = {t: float(np.median(v)) for t, v in sorted(floors.items())}
    points, values = thin(floor)
    rates = []
    for width, tokens, pairs, us in rows:
        above = us - interpolate(points, values, tokens)
        if width > 1 and above > interpolate(points, values, tokens):
            rates.append(above / pairs)
    arithmetic = float(np.median(rates))
    source = draft.published(
        "aic.sglang.scan",
        f"sparse_attention/sglang/{SGLANG}/dsv4_paged_mqa_logits_module_perf",
        {"sglang": SGLANG},
        "deep_gemm.fp8_paged_mqa_logits",
    )
    draft.add_table("index_scan_floor", {"tokens": points}, values, source)
    device = gpu_spec(draft.gpu)
    sms = _SMS[device.arch]
    clock_per_us = device.bf16_tflops * 1e6 / (sms * _FLOPS_PER_CLOCK[device.arch])
    head_sum = 64 * 2 / (sms * 128 * clock_per_us)
    for dtype, width_bytes in INDEX_BYTES.items():
        if dtype == "fp4" and not device.has_fp4_index:
            continue
        for shape in SHAPES:  # the indexer is the same in both: 64 heads of 128
            draft.add_fit(
                f"index_scan.{shape.name}.{dtype}",
                {"entries": (1, 8 * MAX_TOKENS), "pairs": (1, 64 * MAX_TOKENS)},
                [
                    ("hbm", width_bytes / rate, ("entries",)),
                    ("matrix", arithmetic, ("pairs",)),
                    ("head_sum", head_sum, ("pairs",)),
                ],
                "max",
                source,
                "above the floor; hbm = bytes of a key / hbm_stream (the table itself is L2-resident), "
                "matrix = slope of widths 4 and 8"
                + (", taken from FP8 keys" if dtype == "fp4" else "")
                + ", head_sum = FP32 roofline",
                assumed=0.15,
            )
    for width, tokens, pairs, us in rows:
        if width > 1 and us > 2 * interpolate(points, values, tokens):
            for shape in SHAPES:
                guess = interpolate(points, values, tokens) + pairs * arithmetic
                draft.compare(f"index_scan.{shape.name}.fp8", guess, us)


def topk_table(draft: Draft, shape: Shape) -> Table:
    table = draft.table("sparse_attention", "sglang", SGLANG, "dsv4_csa_topk_calib_perf")
    return table.where(model=model_label(table, shape))


def model_label(table: Table, shape: Shape) -> str:
    """The label by which this table's rows name the model."""
    labels = sorted({str(m) for m in table["model"] if shape.label in str(m)})
    assert len(labels) == 1, labels
    return labels[0]


def add_topk(draft: Draft) -> None:
    """Decode latency over context (v2), saturated rate (v1), and the prefill grid (v1), per model."""
    source = draft.published(
        "aic.sglang.topk",
        f"sparse_attention/sglang/{SGLANG}/dsv4_csa_topk_calib_perf, realistic scores (top_last)",
        {"sglang": SGLANG},
        "topk_transform v2 (decode), v1 (prefill)",
    )
    for shape in SHAPES:
        table = topk_table(draft, shape)
        _add_topk_decode(draft, shape, table, source)
        _add_topk_rate(draft, shape, table, source)


def _add_topk_decode(draft: Draft, shape: Shape, table: Table, source: str) -> None:
    rows = table.where(score_mode="v2_top_last", isl=1).groups("batch_size", "step")
    start = shape.saturation_tokens
    curve: dict[int, list[float]] = {}
    for (batch, past), us in rows.items():
        if past > start and batch <= 16:
            curve.setdefault(past, []).append(us)
    points, values = thin({p: float(np.median(v)) for p, v in curve.items()})
    points = [0, start, start + 4, *points]
    values = rising([0.0, 0.0, values[0], *values])
    name = f"topk_decode.{shape.name}"
    draft.add_table(
        name,
        {"ctx_max": points},
        values,
        source,
        "one row; below top-k entries nothing is selected",
    )
    for (batch, past), us in rows.items():
        if past > start and batch <= 16:
            draft.compare(name, interpolate(points, values, past), us)


def _add_topk_rate(draft: Draft, shape: Shape, table: Table, source: str) -> None:
    rows = table.where(score_mode="v1_top_last").groups("isl", "batch_size", "step")
    picked = [
        (past, us / (isl * batch))
        for (isl, batch, past), us in rows.items()
        if isl * batch >= 4096 and past >= shape.saturation_tokens
    ]
    past = np.array([p for p, _ in picked], dtype=np.float64)
    rate = np.array([r for _, r in picked])
    slope = float((past * rate).sum() / (past * past).sum())
    base = float(np.median(np.maximum(rate - slope * past, 0.0)))
    draft.add_fit(
        f"topk_rate.{shape.name}",
        {"tokens": (4096, 65_536), "token_context": (1, 64 * MAX_TOKENS)},
        [("per_token", base, ("tokens",)), ("per_pair", slope, ("token_context",))],
        "sum",
        source,
        "all SMs busy; token_context = sum over query tokens of their context",
        assumed=0.25,
    )
