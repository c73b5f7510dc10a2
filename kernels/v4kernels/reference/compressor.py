"""Compression of a whole history at once in fp64: entries before quantisation."""

from __future__ import annotations

import torch
from torch import Tensor

from v4kernels.shapes import CompressorShape


def rope_table(positions: int, theta: float, dim: int = 64) -> Tensor:
    """fp32 [positions, dim]: cosines, then sines, of plain RoPE."""
    inverse = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * inverse
    return torch.cat([angle.cos(), angle.sin()], 1).float()


def rotate(x: Tensor, table: Tensor, *, inverse: bool = False) -> Tensor:
    """Interleaved RoPE of the last 64 channels of x [..., n, dim] with rows of a rope table [n, 64]."""
    cos, sin = table.to(x.dtype).chunk(2, dim=-1)
    if inverse:
        sin = -sin
    even, odd = x[..., -64::2], x[..., -63::2]
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1)
    return torch.cat([x[..., :-64], turned.flatten(-2)], dim=-1)


def compress(
    states: Tensor, bias: Tensor, norm: Tensor, rope: Tensor, shape: CompressorShape, eps: float
) -> Tensor:
    """[entries, dim] of the history `states` [tokens, state_width], in the precision of `states`."""
    groups = states.shape[0] // shape.ratio
    used = states[: groups * shape.ratio].reshape(groups, shape.ratio, 2, shape.series, shape.dim)
    keys, gates = used[:, :, 0], used[:, :, 1] + bias.to(states).view(shape.ratio, shape.series, shape.dim)
    if shape.overlap:
        before = torch.zeros_like(keys[:, :, 0])
        before[1:] = keys[:-1, :, 0]
        before_gates = torch.full_like(before, -torch.inf)
        before_gates[1:] = gates[:-1, :, 0]
        key, gate = torch.cat([before, keys[:, :, 1]], 1), torch.cat([before_gates, gates[:, :, 1]], 1)
    else:
        key, gate = keys[:, :, 0], gates[:, :, 0]
    x = (torch.softmax(gate, dim=1) * key).sum(1)
    x = x * torch.rsqrt((x * x).mean(1, keepdim=True) + eps) * norm.to(x)
    return rotate(x, rope[torch.arange(groups, device=rope.device) * shape.ratio])
