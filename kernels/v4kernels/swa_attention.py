"""Sliding-window attention alone: the first layers of V4-Flash and V4.1, and the MTP layer."""

from __future__ import annotations

from torch import Tensor

from v4kernels import attention, layouts
from v4kernels.work import Work


def swa_attention(
    q: Tensor,
    sinks: Tensor,
    window: layouts.PagedCache,
    window_slots: Tensor,
    *,
    num_splits: int | None = None,
    form: str | None = None,
) -> Tensor:
    """bf16 [tokens, heads, 512].

    q             bf16 [tokens, heads, 512], RoPE applied
    sinks         fp32 [heads]
    window_slots  int32 [tokens, window], physical slots in `window`, -1 for none
    """
    return attention.launch(q, sinks, window, window_slots, None, num_splits=num_splits, form=form)


def work(
    requests: int,
    tokens_per_request: int,
    heads: int,
    *,
    window: int = 128,
    fmt: layouts.EntryFormat = layouts.FP8_584,
) -> Work:
    """Adjacent tokens of a request share all but one entry of their windows."""
    tokens = requests * tokens_per_request
    entry_bytes = requests * (window + tokens_per_request - 1) * fmt.entry_bytes
    return attention.attention_work(heads, tokens * window, tokens, entry_bytes)
