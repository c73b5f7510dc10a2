"""HCA attention: the sliding window and *all* visible C128 entries under the page table, split over programs.

A million tokens are 8,192 entries, so one decode token is cut into up to 64 ranges that `combine`
merges. Pages hold two entries (1,728 bytes): entry e of a request lies in page_table[e // 2], row e %
2.
"""

from __future__ import annotations

from torch import Tensor

from v4kernels import attention, layouts
from v4kernels.work import Work


def hca_attention(
    q: Tensor,
    sinks: Tensor,
    window: layouts.PagedCache,
    window_slots: Tensor,
    entries: layouts.PagedCache,
    page_table: Tensor,
    token_request: Tensor,
    visible: Tensor,
    *,
    max_visible: int,
    num_splits: int | None = None,
    form: str | None = None,
) -> Tensor:
    """bf16 [tokens, heads, 512].

    q              bf16 [tokens, heads, 512], RoPE applied
    sinks          fp32 [heads]
    window_slots   int32 [tokens, window], physical slots in `window`, -1 for none
    page_table     int32 [requests, max_pages] of `entries`
    token_request  int32 [tokens]
    visible        int32 [tokens], floor((position + 1) / 128) entries each token sees; at most `max_visible`
    """
    return attention.launch(
        q,
        sinks,
        window,
        window_slots,
        entries,
        page_table=page_table,
        token_request=token_request,
        visible=visible,
        max_visible=max_visible,
        num_splits=num_splits,
        form=form,
    )


def work(visible: list[int], tokens_per_request: int, heads: int, *, window: int = 128) -> Work:
    """One entry of `visible` per request; its tokens (a verify step, a chunk) read the entries once."""
    fmt = layouts.FP8_584
    tokens = tokens_per_request * len(visible)
    pairs = tokens_per_request * (sum(visible) + window * len(visible))
    shared_window = window + tokens_per_request - 1
    entry_bytes = (sum(visible) + shared_window * len(visible)) * fmt.entry_bytes
    return attention.attention_work(heads, pairs, tokens, entry_bytes)
