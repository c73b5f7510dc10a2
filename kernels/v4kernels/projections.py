"""The dense matrices of a V4 layer through torch: what cuBLAS makes of them, so that a measured profile
is complete.

q_a, q_b, kv, o_a (a product per group of heads) and o_b of attention; keys and gates of the
compressors; query and head weights of the indexer; the shared expert. bf16 anywhere; `fp8` (e4m3 with
one scale per tensor, `torch._scaled_mm`) where the device has it: the same operands and rate as the
served 128x128-block FP8, without its scale reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from v4kernels import checks
from v4kernels.shapes import HEAD_DIM, INDEX_DIM, ModelShape
from v4kernels.work import Work


@dataclass(frozen=True, slots=True)
class Matrix:
    """`groups` products [tokens, inputs] · [inputs, outputs] of one layer."""

    name: str
    inputs: int
    outputs: int
    groups: int = 1

    @property
    def parameters(self) -> int:
        return self.groups * self.inputs * self.outputs

    def work(self, tokens: int, dtype: str) -> Work:
        byte = 1 if dtype == "fp8" else 2
        return Work(
            read_bytes=self.parameters * byte + tokens * self.inputs * self.groups * byte,
            write_bytes=tokens * self.outputs * self.groups * 2,
            matrix_flops=2 * tokens * self.parameters,
        )


def attention_matrices(shape: ModelShape, heads: int | None = None) -> list[Matrix]:
    """Attention projections of every layer; `heads` on this rank under tensor parallelism."""
    local = heads or shape.heads
    groups = shape.o_groups * local // shape.heads
    per_group = shape.heads * HEAD_DIM // shape.o_groups
    return [
        Matrix("q_a", shape.hidden, shape.q_lora_rank),
        Matrix("q_b", shape.q_lora_rank, local * HEAD_DIM),
        Matrix("kv", shape.hidden, HEAD_DIM),
        Matrix("o_a", per_group, shape.o_lora_rank, groups),
        Matrix("o_b", groups * shape.o_lora_rank, shape.hidden),
    ]


def csa_matrices(shape: ModelShape) -> list[Matrix]:
    """What an indexed V4 layer adds: C4 keys and gates (two series), the index twin, index query and
    weights."""
    return [
        Matrix("compressor", shape.hidden, 4 * HEAD_DIM),
        Matrix("index_compressor", shape.hidden, 4 * INDEX_DIM),
        Matrix("index_q", shape.q_lora_rank, shape.index_heads * INDEX_DIM),
        Matrix("index_weights", shape.hidden, shape.index_heads),
    ]


def hca_matrices(shape: ModelShape) -> list[Matrix]:
    """What a C128 layer adds: one series of keys and gates."""
    return [Matrix("compressor", shape.hidden, 2 * HEAD_DIM)]


def shared_expert_matrices(shape: ModelShape) -> list[Matrix]:
    """The shared expert, gate and up together."""
    return [
        Matrix("shared_gate_up", shape.hidden, 2 * shape.expert_dim),
        Matrix("shared_down", shape.expert_dim, shape.hidden),
    ]


def prepare(
    matrix: Matrix, tokens: int, dtype: str, device: torch.device, generator: torch.Generator | None = None
) -> Callable[[], Tensor]:
    """A closure that runs the product once on random operands: what a measurer times."""
    checks.choose(dtype, "dtype", ("bf16", "fp8"))
    x = torch.randn(matrix.groups, tokens, matrix.inputs, generator=generator).to(device)
    w = torch.randn(matrix.groups, matrix.outputs, matrix.inputs, generator=generator).to(device)
    w *= matrix.inputs**-0.5
    if dtype == "bf16":
        a, b = x.to(torch.bfloat16), w.to(torch.bfloat16).transpose(1, 2)
        if matrix.groups == 1:
            return lambda: a[0] @ b[0]
        return lambda: torch.bmm(a, b)
    one = torch.ones((), device=device)
    pairs = [(p.to(torch.float8_e4m3fn), q.to(torch.float8_e4m3fn).T) for p, q in zip(x, w, strict=True)]

    def scaled() -> Tensor:
        products = [torch._scaled_mm(p, q, one, one, out_dtype=torch.bfloat16) for p, q in pairs]
        return products[0] if len(products) == 1 else torch.stack(products)

    return scaled
