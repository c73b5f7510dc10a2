"""Norms, RoPE and quantisation between the matrices of an attention layer.

With them a sum of kernels is a module. Six launches a layer, seven where it selects, each over all tokens of
the batch. Steps follow what engines fuse: input (norm, quantise), low-rank query (norm, quantise), query
heads (norm, turn), latent (norm, turn, quantise), output heads (turn back), grouped output (quantise), index
query (turn, quantise). Counts are the kernel's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from v4calib.grid import Grid, Point, token_points
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.operations.layers import kind_of, layer_names
from v4calib.operations.tensors import sample, worst
from v4calib.roofline import Work
from v4kernels.shapes import HEAD_DIM, INDEX_DIM, ROPE_DIM, model

_GROUP = 128
_POSITIONS = 4096


@dataclass(frozen=True, slots=True)
class Step:
    """One launch: rows a token, their width, what is done to them."""

    rows: int
    width: int
    norm: str
    turn: str
    quantise: bool

    def work(self, tokens: int) -> Work:
        rows = tokens * self.rows
        values = rows * self.width
        return Work(
            read_bytes=2 * values,
            write_bytes=values + values // _GROUP if self.quantise else 2 * values,
            fp32_ops=values * (3 * (self.norm != "none") + 2 * self.quantise)
            + rows * ROPE_DIM * 3 * (self.turn != "none"),
        )


def steps(name: str, layer: str, tp: int) -> list[Step]:
    """The launches of one layer on one rank."""
    m, kind = model(name), kind_of(name, layer)
    heads, groups = m.heads // tp, max(m.o_groups // tp, 1)
    found = [
        Step(1, m.hidden, "weighted", "none", True),
        Step(1, m.q_lora_rank, "weighted", "none", True),
        Step(heads, HEAD_DIM, "unit", "forward", False),
        Step(1, HEAD_DIM, "weighted", "forward", True),
        Step(heads, HEAD_DIM, "none", "back", False),
        Step(1, groups * m.o_lora_rank, "none", "none", True),
    ]
    if kind.selects:
        found.append(Step(m.index_heads, INDEX_DIM, "none", "forward", True))
    return found


class NormRope(LaunchedOperation):
    """All steps of a layer."""

    name = "norm_rope"
    about = "norms, RoPE and quantisation of an attention layer"
    kernel = "v4kernels.norm_rope"
    group = "tokens"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        return [
            Point(p.operation, p.model, (*p.sizes, ("layer", layer)), p.held_out)
            for tp in axes.tps
            for p in token_points(self.name, model_name, axes, tp=tp)
            for layer in layer_names(model_name)
        ]

    def _steps(self, point: Point) -> list[Step]:
        return steps(point.model, point.word("layer"), point["tp"])

    def configuration(self, point: Point) -> str:
        return f"{point.model} tp{point['tp']} {len(self._steps(point))} steps"

    def twin(self, point: Point) -> Point:
        return point.with_sizes(tokens=1)

    def work(self, point: Point) -> Work:
        each = [step.work(point["tokens"]) for step in self._steps(point)]
        return Work(
            read_bytes=sum(w.read_bytes for w in each),
            write_bytes=sum(w.write_bytes for w in each),
            fp32_ops=sum(w.fp32_ops for w in each),
        )

    def footprint_bytes(self, point: Point) -> int:
        return self.work(point).hbm_bytes

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        from v4kernels import norm_rope as kernel
        from v4kernels import numeric, quant
        from v4kernels.reference import norm_rope as reference
        from v4kernels.reference.compressor import rope_table

        tokens, found = point["tokens"], self._steps(point)
        rope = rope_table(_POSITIONS, 10000.0).to(torch_device)
        positions = (torch.arange(tokens, device=torch_device) % _POSITIONS).to(torch.int32)
        sets = [
            [torch.randn(tokens * s.rows, s.width, device=torch_device).to(torch.bfloat16) for s in found]
            for _ in range(copies)
        ]
        weights = [0.5 + torch.rand(s.width, device=torch_device) for s in found]

        def run(copy: int) -> object:
            done = []
            for step, x, weight in zip(found, sets[copy], weights, strict=True):
                named = {"weight": weight, "norm": step.norm, "turn": step.turn, "rope": rope}
                if kernels:
                    done.append(kernel.norm_rope(x, positions=positions, quantise=step.quantise, **named))
                else:
                    done.append((reference.norm_rope(x.float(), positions=positions, **named), None))
            return done

        def check() -> str | None:
            """A few tokens of every step."""
            taken = sample(3, tokens)
            for step, x, weight in zip(found, sets[0], weights, strict=True):
                rows = torch.tensor([t * step.rows + r for t in taken for r in range(step.rows)])
                few, at = x[rows.to(x.device)].contiguous(), positions[taken]
                got, scale = kernel.norm_rope(
                    few, weight=weight, norm=step.norm, turn=step.turn, rope=rope, positions=at,
                    quantise=step.quantise,
                )  # fmt: skip
                want = reference.norm_rope(
                    few.double().cpu(), weight=weight.cpu(), norm=step.norm, turn=step.turn, rope=rope.cpu(),
                    positions=at.cpu(),
                )  # fmt: skip
                pair = want.abs() + want.abs().unflatten(1, (-1, 2)).flip(-1).flatten(1)
                bound = (step.width + 8) * numeric.U_FP32 * pair
                if scale is None:
                    bound = bound + numeric.bf16_roundoff(got.device) * want.abs()
                    problem = worst(self.name, numeric.deviation(got, want, bound))
                else:
                    values = quant.from_e4m3(got.view(torch.uint8), scale).cpu()
                    top = want.abs().unflatten(1, (-1, _GROUP)).amax(-1).repeat_interleave(_GROUP, 1)
                    bound = bound + 2 * numeric.U_E4M3 * want.abs() + 2.0**-16 * top
                    problem = worst(self.name, numeric.deviation(values, want, bound))
                if problem:
                    return problem
            return None

        return TorchCase(run, check if kernels else lambda: None, copies, self.footprint_bytes(point))
