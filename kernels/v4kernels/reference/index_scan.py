"""Index logits in fp64: decode the keys, multiply, ReLU, weigh. Also the magnitude that bounds the
error.
"""

from __future__ import annotations

import torch
from torch import Tensor

from v4kernels import layouts, quant


def decode_queries(q: Tensor, q_scale: Tensor | None, fmt: layouts.EntryFormat) -> Tensor:
    """fp32 [tokens, heads, 128]."""
    if fmt is layouts.INDEX_FP4:
        assert q_scale is not None
        return quant.from_mxfp4(q, q_scale)
    return q.view(torch.float8_e4m3fn).float()


def index_scan(
    q: Tensor,
    q_scale: Tensor | None,
    weights: Tensor,
    cache: Tensor,
    page_table: Tensor,
    token_request: Tensor,
    visible: Tensor,
    *,
    fmt: layouts.EntryFormat,
    page_entries: int,
    columns: int,
    candidates: Tensor | None = None,
    candidate_entries: int = 8,
) -> tuple[Tensor, Tensor]:
    """(logits, magnitudes), fp64 [tokens, columns]; unseen columns hold -inf and 0.

    The magnitude is Σ_h |w_h| Σ_d |q·k|, times the number of roundings it bounds the error of any
    summation order.
    """
    queries = decode_queries(q, q_scale, fmt).double()
    logits = torch.full((q.shape[0], columns), -torch.inf, dtype=torch.float64)
    magnitudes = torch.zeros_like(logits)
    for token in range(q.shape[0]):
        seen = int(visible[token])
        if candidates is None:
            entries = torch.arange(seen)
            column = entries
        else:
            entries = (
                candidates[token].long()[:, None] * candidate_entries + torch.arange(candidate_entries)
            ).flatten()
            listed = candidates[token].long().repeat_interleave(candidate_entries) >= 0
            column = torch.nonzero(listed & (entries < seen)).flatten()
            entries = entries[column]
        slots = layouts.slots_of(page_table[int(token_request[token])], page_entries, entries)
        keys = layouts.read(fmt, cache, page_entries, slots).double()
        w = weights[token].double()
        logits[token, column] = torch.relu(keys @ queries[token].T) @ w
        magnitudes[token, column] = (keys.abs() @ queries[token].abs().T) @ w.abs()
    return logits, magnitudes
