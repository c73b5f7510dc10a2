"""The dense matrices of a V4 layer and what a product with one of them moves and computes.

q_a, q_b, kv, o_a (a product per group of heads) and o_b of attention; keys and gates of the compressors;
query and head weights of the indexer; the shared expert. Shapes alone: no torch (`projections` runs them).
"""

from __future__ import annotations

from dataclasses import dataclass

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
    groups = max(shape.o_groups * local // shape.heads, 1)
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


def shared_expert_matrices(shape: ModelShape, parts: int = 1) -> list[Matrix]:
    """The shared expert, gate and up together; the slice of one of `parts` ranks."""
    local = shape.expert_dim // parts
    return [
        Matrix("shared_gate_up", shape.hidden, 2 * local),
        Matrix("shared_down", local, shape.hidden),
    ]
