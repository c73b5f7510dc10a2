"""Top-k by a stable sort: equal logits keep the lower column."""

from __future__ import annotations

import torch
from torch import Tensor


def topk(logits: Tensor, lengths: Tensor, k: int) -> list[list[int]]:
    """Chosen columns per row, ascending."""
    chosen = []
    for row, length in zip(logits.float().cpu(), lengths.tolist(), strict=True):
        values = torch.where(row[:length] == 0, 0.0, row[:length])
        order = torch.sort(values, descending=True, stable=True).indices
        chosen.append(sorted(order[: min(k, length)].tolist()))
    return chosen


def block_maxima(logits: Tensor, visible: Tensor, block_entries: int) -> list[list[float]]:
    """Best visible logit per block, and +inf for the newest block."""
    result = []
    for row, seen in zip(logits.tolist(), visible.tolist(), strict=True):
        blocks = [max(row[i : min(i + block_entries, seen)]) for i in range(0, seen, block_entries)]
        if blocks:
            blocks[-1] = float("inf")
        result.append(blocks)
    return result
