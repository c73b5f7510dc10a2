"""Routed experts of one rank: both grouped GEMMs and the SwiGLU between, MXFP4 weights.

`tokens` are those of the whole expert group; popularity falls as rank^-1.2 (the skew that gives the published
imbalance of 1.4 x at 512 tokens a rank), experts are spread over ranks at random, and the rank measured
is the busiest. On sm_100 activations are MXFP8, on sm_90 BF16 (weights widened on chip, as Hopper serves
them).
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

from v4calib.device import DeviceFacts
from v4calib.grid import Grid, Point, token_points
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.operations.tensors import worst
from v4calib.roofline import Work
from v4kernels.shapes import model

SKEW = 1.2
_WIDTH = 256  # columns of a block of the kernels
_CUTS = {"quick": ((1, 4), (1, 8)), "cpu": ((1, 4),)}
_ALL_CUTS = ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (1, 8))
_BYTES = {"fp8": 1 + 1 / 32, "bf16": 2.0}
ACTIVATIONS = tuple(_BYTES)


@lru_cache(maxsize=256)
def rank_counts(tokens: int, experts: int, active: int, ep: int) -> tuple[int, ...]:
    """Rows per expert on the busiest rank of `ep`."""
    weights = [(i + 1.0) ** -SKEW for i in range(experts)]
    counts, left = [0] * experts, tokens * active
    while left:
        open_ = [e for e in range(experts) if counts[e] < tokens]
        total = sum(weights[e] for e in open_)
        shares = {e: left * weights[e] / total for e in open_}
        added = 0
        for e in open_:
            more = min(int(shares[e]), tokens - counts[e])
            counts[e] += more
            added += more
        if not added:  # less than a row each: one each to the most popular
            for e in open_[:left]:
                counts[e] += 1
                added += 1
        left -= added
    random.Random(experts).shuffle(counts)
    each = experts // ep
    return tuple(max((counts[r * each : (r + 1) * each] for r in range(ep)), key=sum))


class RoutedExperts(LaunchedOperation):
    """The busiest rank's experts."""

    name = "experts"
    about = "routed experts, grouped GEMM with MXFP4 weights"
    kernel = "v4kernels.moe_grouped_gemm"
    group = "tokens"
    cpu = False

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        cuts = _CUTS.get(axes.name, _ALL_CUTS)
        return [
            Point(p.operation, p.model, (*p.sizes, ("activation", activation)), p.held_out)
            for tp, ep in cuts
            for p in token_points(self.name, model_name, axes, tp=tp, ep=ep)
            for activation in ACTIVATIONS
        ]

    def refuse(self, point: Point, facts: DeviceFacts) -> str | None:
        reason = super().refuse(point, facts)
        if reason is None and (point.word("activation") == "fp8") != (facts.arch >= 100):
            return f"sm_{facts.arch} serves these experts with other activations"
        width = model(point.model).expert_dim // point["tp"]
        if reason is None and width % _WIDTH:
            return f"an expert of {width} columns under TP {point['tp']} is no multiple of {_WIDTH}"
        return reason

    def matrix_format(self, point: Point) -> str:
        return point.word("activation")

    def configuration(self, point: Point) -> str:
        counts = [c for c in self._counts(point) if c]
        mean = sum(counts) / max(len(counts), 1)
        block = next((b for b in (16, 32, 64) if mean <= b), 128)
        return f"{point.model} {point.word('activation')} tp{point['tp']} {block}"

    def work(self, point: Point) -> Work:
        shape, counts = model(point.model), self._counts(point)
        hidden, width = shape.hidden, shape.expert_dim // point["tp"]
        rows, hit = sum(counts), sum(1 for c in counts if c)
        weights, byte = 3 * hidden * width, _BYTES[point.word("activation")]
        return Work(
            read_bytes=hit * (weights // 2 + weights // 32)
            + int(rows * (hidden + width) * byte)
            + rows * 4 * width,
            write_bytes=rows * (4 * width + 2 * hidden) + int(rows * width * byte),
            matrix_flops=2 * rows * weights,
            fp32_ops=rows * width * 12,
        )

    def _counts(self, point: Point) -> list[int]:
        shape = model(point.model)
        return list(rank_counts(point["tokens"], shape.experts, shape.experts_per_token, point["ep"]))

    def footprint_bytes(self, point: Point) -> int:
        return self.work(point).hbm_bytes

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        from v4kernels import moe_grouped_gemm as kernel
        from v4kernels import numeric, quant
        from v4kernels.reference import moe_grouped_gemm as reference

        shape, counts, activation = model(point.model), self._counts(point), point.word("activation")
        hidden, width = shape.hidden, shape.expert_dim // point["tp"]
        blocks = kernel.plan_blocks(counts, torch_device)

        def weights(outputs: int, inputs: int) -> tuple[Any, Any]:
            size = (len(counts), outputs)
            packed = torch.randint(0, 256, (*size, inputs // 2), dtype=torch.uint8, device=torch_device)
            scale = torch.randint(118, 124, (*size, inputs // 32), dtype=torch.uint8, device=torch_device)
            return packed, scale

        sets = [(weights(2 * width, hidden), weights(hidden, width)) for _ in range(copies)]
        values = torch.randn(max(blocks.rows, 1), hidden, device=torch_device)[: blocks.rows]
        x, x_scale = values.to(torch.bfloat16), None
        if activation == "fp8":
            data, x_scale = quant.to_e4m3(values, 32)
            x = data.view(torch.float8_e4m3fn)

        def run(copy: int) -> Any:
            (gate_up, gate_up_scale), (down, down_scale) = sets[copy]
            middle = kernel.grouped_gemm(x, x_scale, gate_up, gate_up_scale, blocks, activation=activation)
            y, y_scale = kernel.swiglu(middle, activation=activation)
            return kernel.grouped_gemm(y, y_scale, down, down_scale, blocks, activation=activation)

        def check() -> str | None:
            """The first rows of the first expert hit, through the first GEMM."""
            expert = next(i for i, c in enumerate(counts) if c)
            packed, scale = (t[expert : expert + 1] for t in sets[0][0])
            rows = min(4, counts[expert])
            few = kernel.plan_blocks([rows], torch_device)
            first = x[:rows].contiguous()
            first_scale = None if x_scale is None else x_scale[:rows].contiguous()
            got = kernel.grouped_gemm(first, first_scale, packed, scale, few, activation=activation)
            decoded = (
                first.float()
                if first_scale is None
                else quant.from_e4m3(first.view(torch.uint8), first_scale)
            )
            want, magnitude = reference.grouped_gemm(
                decoded.cpu(), quant.from_mxfp4(packed, scale).cpu(), [rows]
            )
            bound = numeric.accumulation_factor(hidden, numeric.U_FP32) * magnitude
            bound += numeric.bf16_roundoff(got.device) * want.abs()
            return worst(self.name, numeric.deviation(got, want, bound))

        return TorchCase(run, check, copies, self.footprint_bytes(point))
