"""Dense parts outside attention: mHC, shared expert, LM head, the projection in front of a draft layer.

mHC tables already fold the two calls of a layer together (before attention and before the experts), so
pre + post is one layer. Dense GEMMs come from the published GEMM grid (BF16 for the LM head, block-FP8 with
activation quantisation for the rest); sizes between its n and k columns are interpolated, an LM head wider
than the widest column is two halves. Both engines share these GEMMs.
"""

from __future__ import annotations

from collections.abc import Mapping

from v4calib.aic.draft import Draft
from v4calib.aic.shapes import SGLANG, SHAPES, TPS, VLLM
from v4calib.aic.source import Table
from v4calib.curves import interpolate, rising, thin

_MAX_ROWS = 16_384


def add_mhc(draft: Draft) -> None:
    for engine, version in (("sglang", SGLANG), ("vllm", VLLM)):
        table = draft.table("mhc", engine, version, "mhc_module_perf")
        source = draft.published(
            f"aic.{engine}.mhc",
            f"mhc/{engine}/{version}/mhc_module_perf",
            {engine: version},
            "tilelang mhc_pre, mhc_post",
        )
        for shape in SHAPES:
            rows = table.where(hidden_size=shape.hidden)
            pre = {t: v for (t,), v in rows.where(op_name="pre").groups("num_tokens").items()}
            post = {t: v for (t,), v in rows.where(op_name="post").groups("num_tokens").items()}
            total = {t: post[t] + _hold(pre, t) for t in sorted(post) if t <= 65_536}
            name = f"mhc.{engine}.{shape.name}"
            points, values = thin(total)
            draft.add_table(name, {"tokens": points}, values, source, "both calls of a layer, pre + post")
            _compare(draft, name, points, values, total)


def _hold(curve: Mapping[int, float], at: int) -> float:
    """The value at a point, or at the next one that was measured (vLLM's pre lacks small batches)."""
    return curve[min((t for t in curve if t >= at), default=max(curve))]


def _compare(
    draft: Draft, name: str, points: list[int], values: list[float], curve: Mapping[int, float]
) -> None:
    for x, us in curve.items():
        if x not in points:
            draft.compare(name, interpolate(points, values, x), us)


class Gemms:
    """The GEMM grid of one number format."""

    def __init__(self, table: Table, dtype: str) -> None:
        self._rows = table.where(gemm_dtype=dtype).groups("n", "k", "m")
        self._n = sorted({n for n, _, _ in self._rows})
        self._k = sorted({k for _, k, _ in self._rows})
        self._m = sorted({m for _, _, m in self._rows})

    def curve(self, n: int, k: int) -> dict[int, float]:
        """Microseconds over rows m, interpolated between the grid's n and k columns."""
        if n > self._n[-1]:
            return {m: 2 * us for m, us in self.curve((n + 1) // 2, k).items()}
        out = {}
        for m in self._m:
            if m <= _MAX_ROWS:
                columns = [self._at_k(column, k, m) for column in _bracket(self._n, n)]
                out[m] = _between(_bracket(self._n, n), columns, n)
        times = rising([out[m] for m in sorted(out)])
        return dict(zip(sorted(out), times, strict=True))

    @staticmethod
    def add(draft: Draft, name: str, curve: Mapping[int, float], note: str) -> None:
        """A GEMM curve as an operation."""
        points, values = thin(curve, 0.02)
        draft.add_table(name, {"tokens": points}, values, "aic.gemm", note)
        _compare(draft, name, points, values, curve)

    def _at_k(self, n: int, k: int, m: int) -> float:
        columns = [c for c in self._k if (n, c, m) in self._rows]
        pair = _bracket(columns, k)
        return _between(pair, [self._rows[n, c, m] for c in pair], k)


def _bracket(points: list[int], x: int) -> list[int]:
    """The point itself, or the two around it."""
    if x in points:
        return [x]
    above = next((i for i, p in enumerate(points) if p > x), len(points) - 1)
    return points[max(above - 1, 0) : above + 1]


def _between(points: list[int], values: list[float], x: int) -> float:
    return values[0] if len(points) == 1 else interpolate(points, values, x)


def add_gemms(draft: Draft) -> None:
    table = draft.table("gemm", "sglang", SGLANG, "gemm_perf")
    bf16, fp8 = Gemms(table, "bfloat16"), Gemms(table, "fp8_block")
    draft.published("aic.gemm", f"gemm/sglang/{SGLANG}/gemm_perf", {"sglang": SGLANG})
    for shape in SHAPES:
        h, inter = shape.hidden, shape.intermediate
        for tp in TPS:
            head = bf16.curve(shape.vocab // tp, h)
            Gemms.add(
                draft, f"lm_head.{shape.name}.tp{tp}", head, "BF16, vocabulary cut over TP, no collective"
            )
            gate, down = fp8.curve(2 * inter // tp, h), fp8.curve(h, inter // tp)
            shared = {m: gate[m] + down[m] for m in gate}
            Gemms.add(
                draft, f"shared_expert.{shape.name}.tp{tp}", shared, "block FP8: gate and up, then down"
            )
        Gemms.add(
            draft, f"mtp_projection.{shape.name}", fp8.curve(h, 2 * h), "block FP8: embedding and hidden to h"
        )
