"""The index scan of vLLM's prefill: keys gathered into one piece, then DeepGEMM's logits kernel over them.

SGLang scans pages; vLLM copies the keys of a chunk's sequence once (`cp_gather_indexer_k_quant_cache`) and
runs `fp8_fp4_mqa_logits` (vllm 0.25 layers/sparse_attn_indexer.py). No table has that kernel for V4. GLM-5's
has it, with FP8 keys of the same 128 values and 32 heads for V4's 64, one entry a token instead of one in
four: its time per (query, entry) pair, times the heads, over the pairs that a V4 chunk has, and the copy.
FP4 keys are priced as FP8 ones: the sum over heads is the same FP32 work.

The residual is assumed: heads and pairs are scaled, nothing of V4 is there to compare with.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from v4calib.aic.draft import Draft
from v4calib.aic.indexer import INDEX_BYTES
from v4calib.aic.shapes import SGLANG, SHAPES
from v4calib.curves import interpolate, rising_grid

_TABLE = "glm5_mqa_logits_module_perf"
_HEADS, _GLM_HEADS, _RATIO = 64, 32, 4


def add_gathered_scan(draft: Draft) -> None:
    table = draft.table("sparse_attention", "sglang", SGLANG, _TABLE).where(batch_size=1)
    rates: dict[int, dict[int, float]] = {}
    for (new, past), us in table.groups("isl", "step").items():
        rates.setdefault(new, {})[past] = us / (new * (past + new / 2))
    stream = draft.operations["hbm_stream"].term("per_byte")
    source = draft.published(
        "aic.sglang.mqa_logits",
        f"sparse_attention/sglang/{SGLANG}/{_TABLE}, GLM-5",
        {"sglang": SGLANG},
        "deep_gemm.fp8_mqa_logits",
    )
    for shape in SHAPES:
        paged = draft.operations[f"index_scan_prefill.{shape.name}"]
        sizes, pasts = (axis.points for axis in paged.axes)
        rows = [
            [
                _rate(rates, new, past / _RATIO) * (_HEADS / _GLM_HEADS) * new * (past + new / 2) / _RATIO
                + 2 * INDEX_BYTES["fp8"] * (past + new) / _RATIO * stream
                for past in pasts
            ]
            for new in sizes
        ]
        name = f"index_scan_prefill.vllm.{shape.name}"
        note = "keys in one piece, FP8; composed from the kernel's rows with half the heads"
        axes = {"new_tokens": sizes, "past_tokens": pasts}
        draft.add_table(name, axes, rising_grid(rows), source, note, assumed=0.1)


def _rate(rates: Mapping[int, Mapping[int, float]], new: float, past: float) -> float:
    """Microseconds of a pair, between the rows of the nearest chunk sizes; their ends hold."""
    sizes = sorted(rates)
    high = min(bisect_right(sizes, new), len(sizes) - 1)
    low = max(high - 1, 0)
    ends = [_along(rates[sizes[at]], past) for at in (low, high)]
    if sizes[low] == sizes[high]:
        return ends[0]
    at = min(max(new, sizes[low]), sizes[high])
    return interpolate([sizes[low], sizes[high]], ends, at)


def _along(rates: Mapping[int, float], past: float) -> float:
    points = sorted(rates)
    at = min(max(past, points[0]), points[-1])
    return interpolate(points, [rates[point] for point in points], at)
