"""The `halves` form of attention: two programs make 256 output dimensions each (see `attention`)."""

from __future__ import annotations

import triton
import triton.language as tl

from v4kernels.latents import load_latents, sink_share, soften
from v4kernels.tile import dot_bf16


@triton.jit
def halves_kernel(
    q_ptr,
    window_byte_ptr,
    window_fp8_ptr,
    window_half_ptr,
    window_slot_ptr,
    extra_byte_ptr,
    extra_fp8_ptr,
    extra_half_ptr,
    extra_slot_ptr,
    table_ptr,
    request_ptr,
    visible_ptr,
    sink_ptr,
    out_ptr,
    partial_ptr,
    stat_ptr,
    scale_log2,
    window_columns,
    extra_columns,
    table_stride,
    blocks_per_split,
    HEADS: tl.constexpr,
    EXTRA: tl.constexpr,
    WINDOW_FORMAT: tl.constexpr,
    WINDOW_SHIFT: tl.constexpr,
    WINDOW_PAGE_BYTES: tl.constexpr,
    EXTRA_FORMAT: tl.constexpr,
    EXTRA_SHIFT: tl.constexpr,
    EXTRA_PAGE_BYTES: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    tl.static_assert(WINDOW_FORMAT == EXTRA_FORMAT, "the halves form has one loop for both lists")
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    split = tl.program_id(2) // 2
    own = (tl.program_id(2) % 2) * 256
    dim = tl.arange(0, 256)
    q_at = (token * HEADS + head)[:, None] * 512 + dim[None, :]
    q_own = tl.load(q_ptr + q_at + own)
    q_other = tl.load(q_ptr + q_at + (256 - own))
    running_max = tl.full((BLOCK_H,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_H,), tl.float32)
    out = tl.zeros((BLOCK_H, 256), tl.float32)

    begin = split * blocks_per_split
    end = begin + blocks_per_split
    window_blocks = tl.cdiv(window_columns, BLOCK_N)
    extra_count = extra_columns
    table = table_ptr
    if EXTRA == "dense":
        extra_count = tl.load(visible_ptr + token)
        table = table_ptr + tl.load(request_ptr + token).to(tl.int64) * table_stride
    # Segment 0 is the window, 1 the rest. One loop body for both: two would not fit the registers.
    SEGMENTS: tl.constexpr = 1 if EXTRA == "none" else 2
    for segment in range(SEGMENTS):
        window = segment == 0
        byte_ptr = tl.where(window, window_byte_ptr, extra_byte_ptr)
        fp8_ptr = tl.where(window, window_fp8_ptr, extra_fp8_ptr)
        half_ptr = tl.where(window, window_half_ptr, extra_half_ptr)
        shift = tl.where(window, WINDOW_SHIFT, EXTRA_SHIFT)
        page_bytes = tl.where(window, WINDOW_PAGE_BYTES, EXTRA_PAGE_BYTES)
        count = tl.where(window, window_columns, extra_count)
        block_first = tl.where(window, begin, tl.maximum(begin - window_blocks, 0))
        block_last = tl.minimum(tl.where(window, end, end - window_blocks), tl.cdiv(count, BLOCK_N))
        slot_ptr = tl.where(
            window, window_slot_ptr + token * window_columns, extra_slot_ptr + token * extra_columns
        )
        for block in range(block_first, block_last):
            at = block * BLOCK_N + tl.arange(0, BLOCK_N)
            if EXTRA == "dense":
                listed = tl.load(slot_ptr + at, mask=at < tl.where(window, count, 0), other=-1)
                page = tl.load(table + (at >> EXTRA_SHIFT), mask=at < tl.where(window, 0, count), other=-1)
                slots = tl.where(page < 0, listed, (page << EXTRA_SHIFT) + (at & ((1 << EXTRA_SHIFT) - 1)))
            else:
                slots = tl.load(slot_ptr + at, mask=at < count, other=-1)
            valid = slots >= 0
            slots = tl.maximum(slots, 0)
            k_other = load_latents(
                byte_ptr,
                fp8_ptr,
                half_ptr,
                slots,
                valid,
                256 - own,
                shift,
                page_bytes,
                256,
                "if_last",
                EXTRA_FORMAT,
            )
            # Always true. A product behind a branch is not seen as feeding P·V, so its tile is spread over
            # both warpgroups instead of computed by each; and one half of K at a time keeps it free of
            # spills.
            scores = tl.zeros((BLOCK_H, BLOCK_N), tl.float32)
            if tl.max(slots, 0) >= 0:
                scores = dot_bf16(q_other, k_other.T, scores)
            k_own = load_latents(
                byte_ptr,
                fp8_ptr,
                half_ptr,
                slots,
                valid,
                own,
                shift,
                page_bytes,
                256,
                "if_last",
                EXTRA_FORMAT,
            )
            if tl.max(slots, 0) >= 0:
                scores = dot_bf16(q_own, k_own.T, scores)
            p, decay, running_max, total = soften(scores, valid, scale_log2, running_max, total)
            out = dot_bf16(p, k_own, out * decay[:, None])

    if SPLIT:
        row = (token * (tl.num_programs(2) // 2) + split) * HEADS + head
        tl.store(partial_ptr + row[:, None] * 512 + own + dim[None, :], out)
        tl.store(stat_ptr + row * 2, running_max)
        tl.store(stat_ptr + row * 2 + 1, total)
    else:
        share = sink_share(tl.load(sink_ptr + head), running_max, total)[:, None]
        tl.store(out_ptr + q_at + own, (out * share).to(tl.bfloat16))
