"""mHC in the precision of its inputs."""

from __future__ import annotations

import torch
from torch import Tensor


def weights(
    x: Tensor, fn: Tensor, base: Tensor, scale: Tensor, norm_eps: float, eps: float, iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(pre [tokens, 4], post [tokens, 4], comb [tokens, 4, 4]) of streams x [tokens, 4, hidden]."""
    flat = x.flatten(1)
    mixes = flat * torch.rsqrt((flat * flat).mean(1, keepdim=True) + norm_eps) @ fn.to(x).T
    base, scale = base.to(x), scale.to(x)
    pre = torch.sigmoid(mixes[:, :4] * scale[0] + base[:4]) + eps
    post = 2 * torch.sigmoid(mixes[:, 4:8] * scale[1] + base[4:8])
    comb = (mixes[:, 8:] * scale[2] + base[8:]).view(-1, 4, 4)
    comb = torch.softmax(comb, dim=-1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return pre, post, comb


def collapse(
    x: Tensor, fn: Tensor, base: Tensor, scale: Tensor, norm_eps: float, eps: float, iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(collapsed [tokens, hidden], post, comb)."""
    pre, post, comb = weights(x, fn, base, scale, norm_eps, eps, iterations)
    return (pre[:, :, None] * x).sum(1), post, comb


def expand(x: Tensor, y: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """x'_k = post_k·y + Σ_j comb[j, k]·x_j."""
    return post[:, :, None] * y[:, None, :] + torch.einsum("tjk,tjd->tkd", comb, x)
