"""Dense matrices through torch: attention projections, shared expert, LM head, the draft layer's projection.

FP8 with one scale a tensor on a GPU (`torch._scaled_mm`: the operands and the rate of the served block FP8,
without its scale reads), BF16 for the LM head and on a CPU. Tensor parallelism divides heads and columns;
what is replicated (q_a, kv, compressors, indexer) is not divided. Matrices follow
`v4kernels.projections`, of which a test holds these counts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from v4calib.grid import Grid, Point, token_points
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.roofline import Work
from v4kernels.shapes import HEAD_DIM, INDEX_DIM, model

LAYERS = ("csa", "hca", "swa")
_TILE = 512


@dataclass(frozen=True, slots=True)
class Matrix:
    """`groups` products [tokens, inputs] x [inputs, outputs]."""

    inputs: int
    outputs: int
    groups: int = 1

    @property
    def parameters(self) -> int:
        return self.groups * self.inputs * self.outputs


def layer_matrices(name: str, layer: str, tp: int) -> list[Matrix]:
    """Projections of one attention layer on one rank."""
    m = model(name)
    groups = max(m.o_groups // tp, 1)
    matrices = [
        Matrix(m.hidden, m.q_lora_rank),
        Matrix(m.q_lora_rank, m.heads // tp * HEAD_DIM),
        Matrix(m.hidden, HEAD_DIM),
        Matrix(m.heads * HEAD_DIM // m.o_groups, m.o_lora_rank, groups),
        Matrix(groups * m.o_lora_rank, m.hidden),
    ]
    if layer == "csa":
        matrices += [
            Matrix(m.hidden, 4 * HEAD_DIM),
            Matrix(m.hidden, 4 * INDEX_DIM),
            Matrix(m.q_lora_rank, m.index_heads * INDEX_DIM),
            Matrix(m.hidden, m.index_heads),
        ]
    if layer == "hca":
        matrices.append(Matrix(m.hidden, 2 * HEAD_DIM))
    return matrices


class Dense(LaunchedOperation):
    """Matrices over an axis of tokens."""

    kernel = "cuBLAS through torch"
    group = "tokens"
    compiles = False
    bf16 = False

    @abstractmethod
    def matrices(self, point: Point) -> list[Matrix]:
        """The matrices that a token passes through."""

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        return [p for tp in axes.tps for p in token_points(self.name, model_name, axes, tp=tp)]

    def matrix_format(self, point: Point) -> str:
        return "bf16" if self.bf16 else "fp8"

    def work(self, point: Point) -> Work:
        tokens, byte = point["tokens"], 2 if self.bf16 else 1
        found = self.matrices(point)
        return Work(
            read_bytes=sum((m.parameters + tokens * m.inputs * m.groups) * byte for m in found),
            write_bytes=sum(tokens * m.outputs * m.groups * 2 for m in found),
            matrix_flops=sum(2 * tokens * m.parameters for m in found),
        )

    def footprint_bytes(self, point: Point) -> int:
        return self.work(point).hbm_bytes

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        fp8 = kernels and not self.bf16 and torch_device != "cpu"
        sets = [
            [_product(m, point["tokens"], fp8, torch_device) for m in self.matrices(point)]
            for _ in range(copies)
        ]

        def run(copy: int) -> None:
            for product in sets[copy]:
                product()

        return TorchCase(run, lambda: None, copies, self.footprint_bytes(point))


class Projections(Dense):
    """Everything dense in an attention layer."""

    name = "projections"
    about = "attention projections of a layer"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        found = super().points(model_name, axes)
        return [
            Point(p.operation, p.model, (*p.sizes, ("layer", layer)), p.held_out)
            for p in found
            for layer in (LAYERS[:2])
        ]

    def matrices(self, point: Point) -> list[Matrix]:
        return layer_matrices(point.model, point.word("layer"), point["tp"])


class SharedExpert(Dense):
    """Gate and up, then down."""

    name = "shared_expert"
    about = "the shared expert"

    def matrices(self, point: Point) -> list[Matrix]:
        m, tp = model(point.model), point["tp"]
        return [Matrix(m.hidden, 2 * m.expert_dim // tp), Matrix(m.expert_dim // tp, m.hidden)]


class LmHead(Dense):
    """Hidden state to vocabulary."""

    name = "lm_head"
    about = "the LM head"
    bf16 = True

    def matrices(self, point: Point) -> list[Matrix]:
        m = model(point.model)
        return [Matrix(m.hidden, m.vocab // point["tp"])]


class MtpProjection(Dense):
    """Embedding and hidden state in front of a draft layer."""

    name = "mtp_projection"
    about = "the projection in front of the draft layer"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        return token_points(self.name, model_name, axes)

    def matrices(self, point: Point) -> list[Matrix]:
        m = model(point.model)
        return [Matrix(2 * m.hidden, m.hidden)]


def _product(matrix: Matrix, tokens: int, fp8: bool, device: str) -> Callable[[], Any]:
    """One product on operands that repeat every few rows: random enough, and quick to make."""
    import torch

    def operand(rows: int, columns: int) -> Any:
        few = torch.randn(min(rows, _TILE), columns, device=device) * columns**-0.5
        repeated = few.to(torch.float8_e4m3fn if fp8 else torch.bfloat16).view(
            torch.uint8 if fp8 else torch.bfloat16
        )
        whole = repeated.repeat(-(-rows // _TILE), 1)[:rows].contiguous()
        return whole.view(torch.float8_e4m3fn) if fp8 else whole

    pairs = [
        (operand(tokens, matrix.inputs), operand(matrix.outputs, matrix.inputs).T)
        for _ in range(matrix.groups)
    ]
    if fp8:
        one = torch.ones((), device=device)
        return lambda: [torch._scaled_mm(x, w, one, one, out_dtype=torch.bfloat16) for x, w in pairs]
    if len(pairs) == 1:
        x, w = pairs[0]
        return lambda: x @ w
    a, b = torch.stack([x for x, _ in pairs]), torch.stack([w for _, w in pairs])
    return lambda: torch.bmm(a, b)
