"""Index scan of CSA: logits[t, s] = Σ_h w[t, h] · ReLU(q[t, h] · k[s]) over paged, quantised keys.

One program takes one group (1-8 consecutive tokens of one request: the verify tokens of a decode step, or a
slice of a prefill chunk) and one span of entries. Keys are the M side of the matrix product and heads the
N side, so a group reads each key once and the head sum stays inside a thread on sm_100. Softmax scale,
head scale and the FP8 query scale are folded into `weights` by the caller: ReLU(c·x) = c·ReLU(x) for c > 0.

Keys: `index_fp8` (e4m3, one fp32 scale per key; wgmma on sm_90, tcgen05 on sm_100) or `index_fp4` (MXFP4,
queries too; block-scaled tcgen05 `kind::mxf4` on sm_100, refused on sm_90, which has no FP4 matrix unit).
Candidate form (V4.1's layers that choose inside a published pool): each token has its own list of entry
blocks. Logits of entries that a token cannot see are not written in the dense form (the top-k gets
lengths), and -inf in the candidate form. Left out: the cross-rank sum where index heads are sharded, and
the query projection.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from v4kernels import checks, layouts
from v4kernels.shapes import INDEX_DIM, MAX_VERIFY
from v4kernels.work import Work

BLOCK_ENTRIES = 128  # M of the matrix product: one tcgen05 tile


@triton.jit
def index_scan_kernel(
    q_ptr,
    q_scale_ptr,
    weight_ptr,
    data_ptr,
    scale_ptr,
    table_ptr,
    request_ptr,
    start_ptr,
    visible_ptr,
    candidate_ptr,
    logit_ptr,
    table_stride,
    logit_stride,
    num_candidates,
    blocks_per_split,
    FP4: tl.constexpr,
    HEADS: tl.constexpr,
    TOKENS: tl.constexpr,
    PAGE_ENTRIES: tl.constexpr,
    PAGE_BYTES: tl.constexpr,
    CANDIDATE_ENTRIES: tl.constexpr,
    RELOAD_WEIGHTS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    split = tl.program_id(0)
    group = tl.program_id(1)
    first = tl.load(start_ptr + group)
    last = tl.load(start_ptr + group + 1)
    table = table_ptr + tl.load(request_ptr + group).to(tl.int64) * table_stride
    KEY_BYTES: tl.constexpr = 64 if FP4 else 128
    heads = tl.arange(0, HEADS)
    bytes_of = tl.arange(0, KEY_BYTES)
    scale_of = tl.arange(0, 4)

    # Queries stay in shared memory for the whole span (transposed here, so that the copy is made once). A
    # group shorter than TOKENS repeats its last token. Weights are 64 registers a token: only one token
    # can keep them.
    q = ()
    q_scale = ()
    weight = ()
    longest = 0
    for t in tl.static_range(TOKENS):
        row = tl.minimum(first + t, last - 1).to(tl.int64)
        at = (row * HEADS + heads)[:, None]
        tile = tl.load(q_ptr + at * KEY_BYTES + bytes_of[None, :])
        q += (tile.T,)
        if FP4:
            q_scale += (tl.load(q_scale_ptr + at * 4 + scale_of[None, :]),)
        if not RELOAD_WEIGHTS:
            weight += (tl.load(weight_ptr + row * HEADS + heads),)
        longest = tl.maximum(longest, tl.load(visible_ptr + row))
    span_end = num_candidates * CANDIDATE_ENTRIES if CANDIDATE_ENTRIES else longest

    block_first = split * blocks_per_split
    block_last = tl.minimum(block_first + blocks_per_split, tl.cdiv(span_end, BLOCK_N))
    for block in range(block_first, block_last):
        offset = block * BLOCK_N + tl.arange(0, BLOCK_N)
        if CANDIDATE_ENTRIES:
            listed = tl.load(
                candidate_ptr + first.to(tl.int64) * num_candidates + offset // CANDIDATE_ENTRIES,
                mask=offset < span_end,
                other=-1,
            )
            entry = listed * CANDIDATE_ENTRIES + offset % CANDIDATE_ENTRIES
            seen = (listed >= 0) & (entry < longest)
            entry = tl.where(seen, entry, 0)
        else:
            entry = offset
            seen = offset < longest
        page = tl.load(table + entry // PAGE_ENTRIES, mask=seen, other=0).to(tl.int64)
        row_in_page = entry % PAGE_ENTRIES
        key = tl.load(data_ptr + (page * PAGE_BYTES + row_in_page * KEY_BYTES)[:, None] + bytes_of[None, :])
        if FP4:
            scale_at = page * PAGE_BYTES + PAGE_ENTRIES * KEY_BYTES + row_in_page * 4
            key_scale = tl.load(data_ptr + scale_at[:, None] + scale_of[None, :])
        else:
            scale_at = page * (PAGE_BYTES // 4) + PAGE_ENTRIES * (KEY_BYTES // 4) + row_in_page
            key_scale = tl.load(scale_ptr + scale_at)
        for t in tl.static_range(TOKENS):
            if FP4:
                dots = tl.dot_scaled(key, key_scale, "e2m1", q[t], q_scale[t], "e2m1")
            else:
                dots = tl.dot(key, q[t])
            token = first + t
            safe = tl.minimum(token, last - 1)
            w = tl.load(weight_ptr + safe.to(tl.int64) * HEADS + heads) if RELOAD_WEIGHTS else weight[t]
            logit = tl.sum(tl.maximum(dots, 0.0) * w[None, :], axis=1)
            if not FP4:
                logit *= key_scale
            if CANDIDATE_ENTRIES:
                logit = tl.where(seen, logit, float("-inf"))
                keep = offset < span_end
            else:
                keep = offset < tl.where(token < last, tl.load(visible_ptr + safe), 0)
            tl.store(logit_ptr + token.to(tl.int64) * logit_stride + offset, logit, mask=keep)


def index_scan(
    q: Tensor,
    q_scale: Tensor | None,
    weights: Tensor,
    cache: Tensor,
    page_table: Tensor,
    group_request: Tensor,
    group_start: Tensor,
    visible: Tensor,
    *,
    fmt: layouts.EntryFormat,
    page_entries: int,
    max_visible: int,
    tokens_per_group: int,
    candidates: Tensor | None = None,
    candidate_entries: int = 8,
    num_splits: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Logits, fp32 [tokens, columns].

    q            uint8 [tokens, heads, 128] e4m3 bytes, or [tokens, heads, 64] packed e2m1
    q_scale      uint8 [tokens, heads, 4] ue8m0 (FP4), None (FP8: folded into weights)
    weights      fp32  [tokens, heads], all scales included
    cache        uint8 [pages, page_bytes] in `fmt`
    page_table   int32 [requests, max_pages]; row r, column e // page_entries holds the page of entry e
    group_request int32 [groups]
    group_start  int32 [groups + 1]; group g is tokens start[g] .. start[g + 1] - 1
    visible      int32 [tokens] entries each token may see, floor((position + 1) / ratio)
    candidates   int32 [tokens, blocks] entry-block numbers, -1 for none; columns are then
                 blocks · candidate_entries, and every group must be one token
    """
    checks.choose(fmt, "fmt", (layouts.INDEX_FP8, layouts.INDEX_FP4))
    fp4 = fmt is layouts.INDEX_FP4
    tokens, heads, _ = q.shape
    checks.choose(heads, "heads", (32, 64))
    checks.choose(page_entries, "page_entries", (16, 32, 64, 128))
    checks.choose(tokens_per_group, "tokens_per_group", tuple(range(1, MAX_VERIFY + 1)))
    checks.require(q, "q", torch.uint8, (tokens, heads, fmt.data_bytes))
    checks.require(weights, "weights", torch.float32, (tokens, heads))
    checks.require(cache, "cache", torch.uint8, (None, fmt.page_bytes(page_entries)))
    checks.require(page_table, "page_table", torch.int32, (None, None))
    groups = group_request.shape[0]
    checks.require(group_request, "group_request", torch.int32, (groups,))
    checks.require(group_start, "group_start", torch.int32, (groups + 1,))
    checks.require(visible, "visible", torch.int32, (tokens,))
    if fp4:
        if q_scale is None:
            raise checks.KernelInputError(
                "q_scale is None, but FP4 keys need MXFP4 queries with their scales"
            )
        checks.require(q_scale, "q_scale", torch.uint8, (tokens, heads, 4))
        if checks.capability(q.device) < 100:
            raise checks.KernelInputError(
                "index_fp4 needs sm_100: sm_90 has no FP4 matrix unit; use index_fp8"
            )
    columns = max_visible
    if candidates is not None:
        checks.require(candidates, "candidates", torch.int32, (tokens, None))
        if groups != tokens:
            raise checks.KernelInputError(
                f"{groups} groups for {tokens} tokens: with candidates they must be equal"
            )
        columns = candidates.shape[1] * candidate_entries
    if out is None:
        out = torch.empty(tokens, columns, dtype=torch.float32, device=q.device)
    checks.require(out, "out", torch.float32, (tokens, None))
    if groups == 0 or columns == 0:
        return out
    blocks = triton.cdiv(columns, BLOCK_ENTRIES)
    if num_splits is None:
        num_splits = default_splits(groups, blocks, checks.num_sms(q.device))
    per_split = triton.cdiv(blocks, num_splits)
    element = torch.uint8 if fp4 else torch.float8_e4m3fn
    index_scan_kernel[(triton.cdiv(blocks, per_split), groups)](
        q.view(element),
        q_scale if fp4 else q,
        weights,
        cache.view(element),
        cache.view(torch.float32),
        page_table,
        group_request,
        group_start,
        visible,
        candidates if candidates is not None else visible,
        out,
        page_table.stride(0),
        out.stride(0),
        candidates.shape[1] if candidates is not None else 0,
        per_split,
        FP4=fp4,
        HEADS=heads,
        TOKENS=tokens_per_group,
        PAGE_ENTRIES=page_entries,
        PAGE_BYTES=cache.shape[1],
        CANDIDATE_ENTRIES=candidate_entries if candidates is not None else 0,
        RELOAD_WEIGHTS=tokens_per_group > 1,
        BLOCK_N=BLOCK_ENTRIES,
        num_warps=warps(fp4, tokens_per_group),
        num_stages=4,
    )
    return out


def warps(fp4: bool, tokens: int) -> int:
    """Eight FP8 query tiles and their products do not fit the registers of four warps."""
    return 8 if tokens == MAX_VERIFY and not fp4 else 4


def default_splits(groups: int, blocks: int, sms: int) -> int:
    """Spans per group: about four programs per multiprocessor, at least four blocks in each."""
    return max(1, min(triton.cdiv(4 * sms, groups), triton.cdiv(blocks, 4)))


def work(
    tokens_per_request: int,
    visible: list[int],
    heads: int,
    fmt: layouts.EntryFormat,
    *,
    candidate_entries: int = 0,
) -> Work:
    """Counts for one group per request with `visible` entries each (candidates: that many per token
    instead).

    FP32 pipe per query, key and head: one max for the ReLU and one FMA for the weighted sum; per query and
    key one multiply by the key scale (FP8 only).
    """
    if candidate_entries:
        entries_read = pairs = tokens_per_request * candidate_entries * len(visible)
    else:
        entries_read = sum(visible)
        pairs = tokens_per_request * entries_read
    tokens = tokens_per_request * len(visible)
    scale_ops = 1 if fmt is layouts.INDEX_FP8 else 0
    return Work(
        read_bytes=entries_read * fmt.entry_bytes + tokens * heads * (fmt.data_bytes + 4),
        write_bytes=pairs * 4,
        matrix_flops=2 * pairs * heads * INDEX_DIM,
        fp32_ops=pairs * (2 * heads + scale_ops),
    )
