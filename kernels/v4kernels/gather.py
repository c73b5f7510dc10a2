"""From logical entry numbers to slots, and entries as plain bf16 rows.

`translate` turns the columns that top-k chose into physical slots: under a page table, and through a
candidate list where the columns count positions in a pool (V4.1). `gather` decodes listed entries to
bf16: the form prefill kernels of serving engines read when many queries share the entries, and the way
to time the gather by itself.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from v4kernels import checks, layouts
from v4kernels.latents import load_latents
from v4kernels.shapes import HEAD_DIM
from v4kernels.work import Work


@triton.jit
def translate_kernel(
    index_ptr,
    table_ptr,
    request_ptr,
    candidate_ptr,
    slot_ptr,
    k,
    table_stride,
    candidate_stride,
    SHIFT: tl.constexpr,
    CANDIDATE_ENTRIES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    entry = tl.load(index_ptr + token * k + at, mask=at < k, other=-1)
    chosen = entry >= 0
    if CANDIDATE_ENTRIES:
        listed = tl.load(
            candidate_ptr + token * candidate_stride + entry // CANDIDATE_ENTRIES, mask=chosen, other=-1
        )
        chosen = listed >= 0
        entry = listed * CANDIDATE_ENTRIES + entry % CANDIDATE_ENTRIES
    table = table_ptr + tl.load(request_ptr + token).to(tl.int64) * table_stride
    page = tl.load(table + (entry >> SHIFT), mask=chosen, other=0)
    slot = (page << SHIFT) + (entry & ((1 << SHIFT) - 1))
    tl.store(slot_ptr + token * k + at, tl.where(chosen, slot, -1), mask=at < k)


@triton.jit
def gather_kernel(
    byte_ptr,
    fp8_ptr,
    half_ptr,
    slot_ptr,
    out_ptr,
    count,
    SHIFT: tl.constexpr,
    PAGE_BYTES: tl.constexpr,
    FORMAT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1) * 256
    slots = tl.load(slot_ptr + row, mask=row < count, other=-1)
    latent = load_latents(
        byte_ptr,
        fp8_ptr,
        half_ptr,
        tl.maximum(slots, 0),
        slots >= 0,
        first,
        SHIFT,
        PAGE_BYTES,
        256,
        "if_last",
        FORMAT,
    )
    at = row.to(tl.int64)[:, None] * 512 + first + tl.arange(0, 256)[None, :]
    tl.store(out_ptr + at, latent, mask=(row < count)[:, None])


def translate(
    index: Tensor,
    page_table: Tensor,
    token_request: Tensor,
    page_entries: int,
    *,
    candidates: Tensor | None = None,
    candidate_entries: int = 8,
) -> Tensor:
    """Slots int32 [tokens, k]; -1 stays -1.

    index          int32 [tokens, k] entries, or columns of the candidate form
    page_table     int32 [requests, pages]
    token_request  int32 [tokens]
    candidates     int32 [tokens, blocks] entry blocks, -1 for none
    """
    tokens, k = index.shape
    checks.require(index, "index", torch.int32, (tokens, k))
    checks.require(page_table, "page_table", torch.int32, (None, None))
    checks.require(token_request, "token_request", torch.int32, (tokens,))
    if candidates is not None:
        checks.require(candidates, "candidates", torch.int32, (tokens, None))
    slots = torch.empty_like(index)
    if tokens and k:
        translate_kernel[(tokens, triton.cdiv(k, 512))](
            index,
            page_table,
            token_request,
            index if candidates is None else candidates,
            slots,
            k,
            page_table.stride(0),
            0 if candidates is None else candidates.stride(0),
            SHIFT=page_entries.bit_length() - 1,
            CANDIDATE_ENTRIES=0 if candidates is None else candidate_entries,
            BLOCK=512,
            num_warps=4,
        )
    return slots


def gather(cache: layouts.PagedCache, slots: Tensor) -> Tensor:
    """bf16 [n, 512] of slots int32 [n]; zeros for -1."""
    cache.check("cache")
    (count,) = slots.shape
    checks.require(slots, "slots", torch.int32, (count,))
    out = torch.empty(count, HEAD_DIM, dtype=torch.bfloat16, device=slots.device)
    if count:
        gather_kernel[(triton.cdiv(count, 16), 2)](
            *cache.views(),
            slots,
            out,
            count,
            SHIFT=cache.shift,
            PAGE_BYTES=cache.page_bytes,
            FORMAT=cache.fmt.name,
            BLOCK=16,
            num_warps=4,
        )
    return out


def work(entries: int, fmt: layouts.EntryFormat) -> Work:
    """Decode `entries` to bf16: a convert and a multiply per value."""
    return Work(
        read_bytes=entries * (fmt.entry_bytes + 4),
        write_bytes=entries * HEAD_DIM * 2,
        fp32_ops=entries * HEAD_DIM * 2,
    )
