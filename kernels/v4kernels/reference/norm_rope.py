"""RMSNorm and RoPE of rows, before quantisation, in the precision of the input."""

from __future__ import annotations

import torch
from torch import Tensor

from v4kernels.reference.compressor import rotate


def norm_rope(
    x: Tensor,
    *,
    weight: Tensor | None = None,
    norm: str = "none",
    turn: str = "none",
    rope: Tensor | None = None,
    positions: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """[rows, width]; the arguments of the kernel."""
    if norm != "none":
        x = x * torch.rsqrt((x * x).mean(1, keepdim=True) + eps)
    if norm == "weighted" and weight is not None:
        x = x * weight.to(x)
    if turn != "none" and rope is not None and positions is not None:
        table = rope[positions.long()].repeat_interleave(x.shape[0] // positions.shape[0], 0)
        x = rotate(x, table.to(x), inverse=turn == "back")
    return x
