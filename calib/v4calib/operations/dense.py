"""Dense matrices through torch: attention projections, shared expert, LM head, the draft layer's projection.

FP8 with one scale a tensor on a GPU (`torch._scaled_mm`: the operands and the rate of the served block FP8,
without its scale reads). BF16 on a CPU, for the LM head, and for the grouped output projection, which engines
run as one batched BF16 product. Which matrices there are: `v4kernels.matrices`, by kind of layer `layers`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from v4calib.grid import Grid, Point, token_points
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.operations.layers import kind_of, layer_matrices, layer_names
from v4calib.operations.tensors import sample, worst
from v4calib.roofline import Work
from v4kernels.matrices import Matrix, shared_expert_matrices
from v4kernels.shapes import model

_TILE = 512


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
        tokens, found = point["tokens"], self.matrices(point)
        return Work(
            read_bytes=sum(
                (m.parameters + tokens * m.inputs * m.groups) * (2 if self.bf16 or m.groups > 1 else 1)
                for m in found
            ),
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
                product.run()

        def check() -> str | None:
            problems = (product.check(self.name) for product in sets[0])
            return next((problem for problem in problems if problem), None)

        return TorchCase(run, check if kernels else lambda: None, copies, self.footprint_bytes(point))


class Projections(Dense):
    """Everything dense in an attention layer."""

    name = "projections"
    about = "attention projections of a layer"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        found = super().points(model_name, axes)
        return [
            Point(p.operation, p.model, (*p.sizes, ("layer", layer)), p.held_out)
            for p in found
            for layer in layer_names(model_name)
        ]

    def matrices(self, point: Point) -> list[Matrix]:
        return layer_matrices(point.model, kind_of(point.model, point.word("layer")), point["tp"])


class SharedExpert(Dense):
    """Gate and up, then down."""

    name = "shared_expert"
    about = "the shared expert"

    def matrices(self, point: Point) -> list[Matrix]:
        return shared_expert_matrices(model(point.model), point["tp"])


class LmHead(Dense):
    """Hidden state to vocabulary."""

    name = "lm_head"
    about = "the LM head"
    bf16 = True

    def matrices(self, point: Point) -> list[Matrix]:
        m = model(point.model)
        return [Matrix("lm_head", m.hidden, m.vocab // point["tp"])]


class MtpProjection(Dense):
    """Embedding and hidden state in front of a draft layer."""

    name = "mtp_projection"
    about = "the projection in front of the draft layer"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        return token_points(self.name, model_name, axes)

    def matrices(self, point: Point) -> list[Matrix]:
        m = model(point.model)
        return [Matrix("mtp_projection", 2 * m.hidden, m.hidden)]


@dataclass(frozen=True, slots=True)
class _Product:
    """One matrix with operands: x [groups, tokens, inputs], w [groups, outputs, inputs]."""

    run: Callable[[], Any]
    x: Any
    w: Any

    def check(self, name: str) -> str | None:
        """Some of the first group's result against FP64 on the same operands."""
        from v4kernels import numeric

        got = self.run()
        x, w = self.x[0], self.w[0]
        rows, columns = sample(4, x.shape[0]), sample(16, w.shape[0])
        few = got.reshape(-1, x.shape[0], w.shape[0])[0][rows][:, columns]
        a, b = x[rows].float().double().cpu(), w[columns].float().double().cpu()
        want, magnitude = a @ b.T, a.abs() @ b.abs().T
        # cuBLAS may add parts of the sum in BF16: what is told here is a wrong operand, not a rounding.
        return worst(name, numeric.deviation(few, want, 2 * numeric.U_BF16 * magnitude))


def _product(matrix: Matrix, tokens: int, fp8: bool, device: str) -> _Product:
    """One product on operands that repeat every few rows: random enough, and quick to make."""
    import torch

    fp8 = fp8 and matrix.groups == 1

    def operand(rows: int, columns: int) -> Any:
        few = torch.randn(min(rows, _TILE), columns, device=device) * columns**-0.5
        repeated = few.to(torch.float8_e4m3fn if fp8 else torch.bfloat16).view(
            torch.uint8 if fp8 else torch.bfloat16
        )
        whole = repeated.repeat(-(-rows // _TILE), 1)[:rows].contiguous()
        return whole.view(torch.float8_e4m3fn) if fp8 else whole

    x, w = operand(tokens, matrix.inputs), operand(matrix.outputs, matrix.inputs)
    if fp8:
        one = torch.ones((), device=device)
        return _Product(
            lambda: torch._scaled_mm(x, w.T, one, one, out_dtype=torch.bfloat16), x[None], w[None]
        )
    if matrix.groups == 1:
        return _Product(lambda: x @ w.T, x[None], w[None])
    a = torch.stack([operand(tokens, matrix.inputs) for _ in range(matrix.groups)])
    b = torch.stack([operand(matrix.outputs, matrix.inputs) for _ in range(matrix.groups)])
    return _Product(lambda: torch.bmm(a, b.transpose(1, 2)), a, b)
