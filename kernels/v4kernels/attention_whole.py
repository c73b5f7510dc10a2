"""The `whole` form of attention: one program makes all 512 output dimensions (see `attention`)."""

from __future__ import annotations

import triton
import triton.language as tl

from v4kernels.latents import load_latents, sink_share, soften
from v4kernels.tile import dot_bf16


@triton.jit
def load_four(
    byte_ptr,
    fp8_ptr,
    half_ptr,
    slots,
    valid,
    SHIFT: tl.constexpr,
    PAGE_BYTES: tl.constexpr,
    FORMAT: tl.constexpr,
):
    """All 512 dimensions as four bf16 tiles [n, 128]."""
    k0 = load_latents(byte_ptr, fp8_ptr, half_ptr, slots, valid, 0, SHIFT, PAGE_BYTES, 128, "no", FORMAT)
    k1 = load_latents(byte_ptr, fp8_ptr, half_ptr, slots, valid, 128, SHIFT, PAGE_BYTES, 128, "no", FORMAT)
    k2 = load_latents(byte_ptr, fp8_ptr, half_ptr, slots, valid, 256, SHIFT, PAGE_BYTES, 128, "no", FORMAT)
    k3 = load_latents(byte_ptr, fp8_ptr, half_ptr, slots, valid, 384, SHIFT, PAGE_BYTES, 128, "yes", FORMAT)
    return k0, k1, k2, k3


@triton.jit
def attend_four(q0, q1, q2, q3, k0, k1, k2, k3, valid, scale_log2, running_max, total, o0, o1, o2, o3):
    """One block of the softmax; the outputs are [dims, heads], so the decay of a head scales a column."""
    scores = dot_bf16(q0, k0.T, tl.zeros((q0.shape[0], k0.shape[0]), tl.float32))
    scores = dot_bf16(q1, k1.T, scores)
    scores = dot_bf16(q2, k2.T, scores)
    scores = dot_bf16(q3, k3.T, scores)
    p, decay, running_max, total = soften(scores, valid, scale_log2, running_max, total)
    o0 = dot_bf16(k0.T, p.T, o0 * decay[None, :])
    o1 = dot_bf16(k1.T, p.T, o1 * decay[None, :])
    o2 = dot_bf16(k2.T, p.T, o2 * decay[None, :])
    o3 = dot_bf16(k3.T, p.T, o3 * decay[None, :])
    return running_max, total, o0, o1, o2, o3


@triton.jit
def whole_kernel(
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
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    split = tl.program_id(2)
    dim = tl.arange(0, 128)
    q_at = (token * HEADS + head)[:, None] * 512 + dim[None, :]
    q0 = tl.load(q_ptr + q_at)
    q1 = tl.load(q_ptr + q_at + 128)
    q2 = tl.load(q_ptr + q_at + 256)
    q3 = tl.load(q_ptr + q_at + 384)
    running_max = tl.full((BLOCK_H,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_H,), tl.float32)
    o0 = tl.zeros((128, BLOCK_H), tl.float32)
    o1 = tl.zeros((128, BLOCK_H), tl.float32)
    o2 = tl.zeros((128, BLOCK_H), tl.float32)
    o3 = tl.zeros((128, BLOCK_H), tl.float32)

    begin = split * blocks_per_split
    end = begin + blocks_per_split
    window_blocks = tl.cdiv(window_columns, BLOCK_N)
    for block in range(begin, tl.minimum(end, window_blocks)):
        at = block * BLOCK_N + tl.arange(0, BLOCK_N)
        slots = tl.load(window_slot_ptr + token * window_columns + at, mask=at < window_columns, other=-1)
        valid = slots >= 0
        slots = tl.maximum(slots, 0)
        k0, k1, k2, k3 = load_four(
            window_byte_ptr,
            window_fp8_ptr,
            window_half_ptr,
            slots,
            valid,
            WINDOW_SHIFT,
            WINDOW_PAGE_BYTES,
            WINDOW_FORMAT,
        )
        running_max, total, o0, o1, o2, o3 = attend_four(
            q0, q1, q2, q3, k0, k1, k2, k3, valid, scale_log2, running_max, total, o0, o1, o2, o3
        )

    if EXTRA != "none":
        count = extra_columns
        table = table_ptr
        if EXTRA == "dense":
            count = tl.load(visible_ptr + token)
            table = table_ptr + tl.load(request_ptr + token).to(tl.int64) * table_stride
        extra_last = tl.minimum(end - window_blocks, tl.cdiv(count, BLOCK_N))
        for block in range(tl.maximum(begin - window_blocks, 0), extra_last):
            at = block * BLOCK_N + tl.arange(0, BLOCK_N)
            if EXTRA == "dense":
                valid = at < count
                page = tl.load(table + (at >> EXTRA_SHIFT), mask=valid, other=0)
                slots = (page << EXTRA_SHIFT) + (at & ((1 << EXTRA_SHIFT) - 1))
            else:
                slots = tl.load(extra_slot_ptr + token * extra_columns + at, mask=at < count, other=-1)
                valid = slots >= 0
                slots = tl.maximum(slots, 0)
            k0, k1, k2, k3 = load_four(
                extra_byte_ptr,
                extra_fp8_ptr,
                extra_half_ptr,
                slots,
                valid,
                EXTRA_SHIFT,
                EXTRA_PAGE_BYTES,
                EXTRA_FORMAT,
            )
            running_max, total, o0, o1, o2, o3 = attend_four(
                q0, q1, q2, q3, k0, k1, k2, k3, valid, scale_log2, running_max, total, o0, o1, o2, o3
            )

    if SPLIT:
        row = (token * tl.num_programs(2) + split) * HEADS + head
        out_at = row[None, :] * 512 + dim[:, None]
        tl.store(partial_ptr + out_at, o0)
        tl.store(partial_ptr + out_at + 128, o1)
        tl.store(partial_ptr + out_at + 256, o2)
        tl.store(partial_ptr + out_at + 384, o3)
        tl.store(stat_ptr + row * 2, running_max)
        tl.store(stat_ptr + row * 2 + 1, total)
    else:
        share = sink_share(tl.load(sink_ptr + head), running_max, total)[None, :]
        out_at = (token * HEADS + head)[None, :] * 512 + dim[:, None]
        tl.store(out_ptr + out_at, (o0 * share).to(tl.bfloat16))
        tl.store(out_ptr + out_at + 128, (o1 * share).to(tl.bfloat16))
        tl.store(out_ptr + out_at + 256, (o2 * share).to(tl.bfloat16))
        tl.store(out_ptr + out_at + 384, (o3 * share).to(tl.bfloat16))
