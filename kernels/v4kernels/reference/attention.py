"""Attention over explicit entries in fp64, and the error a bf16 tensor-core kernel may make."""

from __future__ import annotations

import torch
from torch import Tensor

from v4kernels import numeric


def attention(
    q: Tensor, sinks: Tensor, entries: list[Tensor], u_bf16: float = numeric.U_BF16
) -> tuple[Tensor, Tensor]:
    """(out, bound), fp64 [tokens, heads, 512]; entries[t] are the fp32 latents [n, 512] that token t
    attends to.

    bound: P is rounded to bf16 before P·V while its sum is not, so the weights are off by u_bf16 each;
    a score of 512 products summed in fp32 is off by d = 512·u·Σ|q·k|·scale, hence a weight by a factor
    e^d, numerator and denominator; the sum over n entries adds n·u; the result is rounded to bf16.
    """
    scale = q.shape[-1] ** -0.5
    out = torch.zeros(q.shape, dtype=torch.float64)
    bound = torch.zeros_like(out)
    for token, latents in enumerate(entries):
        query, k = q[token].double().cpu(), latents.double()
        scores = query @ k.T * scale
        sink = sinks.double().cpu()[:, None]
        weights = torch.softmax(torch.cat([scores, sink], 1), dim=1)[:, :-1]
        out[token] = weights @ k
        score_error = 512 * numeric.U_FP32 * (query.abs() @ k.abs().T * scale)
        worst = score_error.amax(1, keepdim=True) if k.shape[0] else torch.zeros(q.shape[1], 1)
        relative = u_bf16 + 2 * worst + (k.shape[0] + 16) * numeric.U_FP32
        bound[token] = relative * (weights @ k.abs()) + u_bf16 * out[token].abs()
    return out, bound
