"""Grouped GEMM and SwiGLU over decoded values, fp64."""

from __future__ import annotations

import torch
from torch import Tensor


def grouped_gemm(x: Tensor, w: Tensor, counts: list[int]) -> tuple[Tensor, Tensor]:
    """(out, Σ|x·w|), fp64 [rows, outputs]; x [rows, inputs] and w [experts, outputs, inputs] decoded."""
    outs, sums, row = [], [], 0
    for expert, count in enumerate(counts):
        part, weight = x[row : row + count].double(), w[expert].double()
        outs.append(part @ weight.T)
        sums.append(part.abs() @ weight.abs().T)
        row += count
    return torch.cat(outs), torch.cat(sums)


def swiglu(gate_up: Tensor, limit: float) -> Tensor:
    """SiLU(min(gate, limit)) · clamp(up, ±limit), in the precision given."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)
