"""CSA attention: the sliding window and the entries that the indexer selected, in one softmax with a sink.

Decode and prefill are the same launch: a row per query token, 128 window slots and 512 or 1024 selected
slots, -1 for none. V4 keeps both as 584-byte entries; V4.1 has a 528-byte window and 288-byte FP4
entries (sm_100 and later).
"""

from __future__ import annotations

from torch import Tensor

from v4kernels import attention, layouts
from v4kernels.work import Work


def sparse_attention(
    q: Tensor,
    sinks: Tensor,
    window: layouts.PagedCache,
    window_slots: Tensor,
    selected: layouts.PagedCache,
    selected_slots: Tensor,
    *,
    num_splits: int | None = None,
    form: str | None = None,
) -> Tensor:
    """bf16 [tokens, heads, 512].

    q               bf16 [tokens, heads, 512], RoPE applied
    sinks           fp32 [heads]
    window_slots    int32 [tokens, window], physical slots in `window`, -1 for none
    selected_slots  int32 [tokens, k], physical slots in `selected`, -1 for none
    """
    return attention.launch(
        q, sinks, window, window_slots, selected, extra_slots=selected_slots, num_splits=num_splits, form=form
    )


def work(
    tokens: int,
    heads: int,
    selected: int,
    *,
    window: int = 128,
    window_format: layouts.EntryFormat = layouts.FP8_584,
    selected_format: layouts.EntryFormat = layouts.FP8_584,
) -> Work:
    """`tokens` queries that share nothing: each reads its own window and selection."""
    entry_bytes = tokens * (window * window_format.entry_bytes + selected * selected_format.entry_bytes)
    return attention.attention_work(heads, tokens * (window + selected), tokens, entry_bytes)
