"""Exact top-k of one row of logits per query, by radix select on the fp32 bits.

Order: larger logit first, the lower column at equal logits; -0.0 equals 0.0; no NaN. A row of length n
<= k gives all n columns. The result is the *set* in a fixed order (columns of the highest radix bins
ascending, then the rest ascending) padded with -1: attention does not care about the order, and a sort
would cost more than it brings.

Three launches. `count` builds a histogram of the top 11 bits per span of the row. `split` finds the bin
that holds the k-th logit, writes every column above it, and collects the columns inside it. `settle`
refines those (a few thousand of a million on real scores) by the 11 + 10 bits left. Counts are integers
and every position comes from a prefix sum, so the output has no race in it. If a bin holds more than
`POOL` columns (tied scores), `settle` reads the row again instead of the pool: slower, as exact.
`block_maxima` and `k` = 2048 make V4.1's candidate pool.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from v4kernels import checks
from v4kernels.work import Work

BINS = tl.constexpr(2048)
POOL = 8192  # columns of the threshold bin that are kept aside, per row
BLOCK = 4096
SETTLE_BLOCK = 2048  # three prefix sums in one loop: 4096 columns spill under Triton 3.6


@triton.jit
def sortable(x):
    """fp32 to uint32 of the same order; both zeros become one."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) | -2147483648)).to(tl.uint32, bitcast=True)


@triton.jit
def threshold_bin(counts, k):
    """(bin of the k-th largest, how many lie in higher bins); (0, 0) for k = 0."""
    at_least = tl.cumsum(counts, reverse=True)
    above = at_least - counts
    here = (above < k) & (at_least >= k)
    bins = tl.arange(0, BINS)
    return tl.sum(tl.where(here, bins, 0)), tl.sum(tl.where(here, above, 0))


@triton.jit
def count_kernel(
    logit_ptr, length_ptr, histogram_ptr, logit_stride, span, SPLITS: tl.constexpr, BLOCK: tl.constexpr
):
    split = tl.program_id(0)
    row = tl.program_id(1)
    begin = split * span
    end = tl.minimum(begin + span, tl.load(length_ptr + row))
    logits = logit_ptr + row.to(tl.int64) * logit_stride
    counts = tl.zeros((BINS,), tl.int32)
    for block in range(begin, end, BLOCK):
        column = block + tl.arange(0, BLOCK)
        key = sortable(tl.load(logits + column, mask=column < end, other=0.0))
        counts += tl.histogram((key >> 21).to(tl.int32), BINS, mask=column < end)
    tl.store(histogram_ptr + (row * SPLITS + split).to(tl.int64) * BINS + tl.arange(0, BINS), counts)


@triton.jit
def split_kernel(
    logit_ptr,
    length_ptr,
    histogram_ptr,
    index_ptr,
    pool_logit_ptr,
    pool_column_ptr,
    found_ptr,
    logit_stride,
    span,
    k,
    SPLITS: tl.constexpr,
    POOL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    split = tl.program_id(0)
    row = tl.program_id(1)
    length = tl.load(length_ptr + row)
    bins = tl.arange(0, BINS)
    total = tl.zeros((BINS,), tl.int32)
    before = tl.zeros((BINS,), tl.int32)
    for other in range(SPLITS):
        counts = tl.load(histogram_ptr + (row * SPLITS + other).to(tl.int64) * BINS + bins)
        total += counts
        before += tl.where(other < split, counts, 0)
    chosen, above = threshold_bin(total, tl.minimum(k, length))
    if split == 0:
        tl.store(found_ptr + row * 3, chosen)
        tl.store(found_ptr + row * 3 + 1, above)
        tl.store(found_ptr + row * 3 + 2, tl.sum(tl.where(bins == chosen, total, 0)))

    sure_at = tl.sum(tl.where(bins > chosen, before, 0))
    pool_at = tl.sum(tl.where(bins == chosen, before, 0))
    logits = logit_ptr + row.to(tl.int64) * logit_stride
    begin = split * span
    end = tl.minimum(begin + span, length)
    for block in range(begin, end, BLOCK):
        column = block + tl.arange(0, BLOCK)
        inside = column < end
        logit = tl.load(logits + column, mask=inside, other=0.0)
        digit = (sortable(logit) >> 21).to(tl.int32)
        sure = (inside & (digit > chosen)).to(tl.int32)
        maybe = (inside & (digit == chosen)).to(tl.int32)
        slot = sure_at + tl.cumsum(sure) - 1
        tl.store(index_ptr + row.to(tl.int64) * k + slot, column, mask=sure != 0)
        place = pool_at + tl.cumsum(maybe) - 1
        kept = (maybe != 0) & (place < POOL)
        tl.store(pool_logit_ptr + row.to(tl.int64) * POOL + place, logit, mask=kept)
        tl.store(pool_column_ptr + row.to(tl.int64) * POOL + place, column, mask=kept)
        sure_at += tl.sum(sure)
        pool_at += tl.sum(maybe)


@triton.jit
def settle_kernel(
    logit_ptr,
    length_ptr,
    index_ptr,
    pool_logit_ptr,
    pool_column_ptr,
    found_ptr,
    logit_stride,
    k,
    K_PADDED: tl.constexpr,
    POOL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    length = tl.load(length_ptr + row)
    chosen = tl.load(found_ptr + row * 3)
    above = tl.load(found_ptr + row * 3 + 1)
    pooled = tl.load(found_ptr + row * 3 + 2)
    fits = pooled <= POOL
    source = logit_ptr + row.to(tl.int64) * logit_stride
    count = length
    if fits:
        source = pool_logit_ptr + row.to(tl.int64) * POOL
        count = pooled
    need = tl.minimum(k, length) - above

    # Middle 11 bits, then the lowest 10, over the columns of the chosen bin.
    counts = tl.zeros((BINS,), tl.int32)
    for block in range(0, count, BLOCK):
        at = block + tl.arange(0, BLOCK)
        key = sortable(tl.load(source + at, mask=at < count, other=0.0))
        inside = (at < count) & ((key >> 21).to(tl.int32) == chosen)
        counts += tl.histogram(((key >> 10) & 2047).to(tl.int32), BINS, mask=inside)
    middle, higher = threshold_bin(counts, need)
    need_low = need - higher
    counts = tl.zeros((BINS,), tl.int32)
    for block in range(0, count, BLOCK):
        at = block + tl.arange(0, BLOCK)
        key = sortable(tl.load(source + at, mask=at < count, other=0.0))
        inside = (at < count) & ((key >> 10).to(tl.int32) == chosen * 2048 + middle)
        counts += tl.histogram((key & 1023).to(tl.int32), BINS, mask=inside)
    lowest, higher = threshold_bin(counts, need_low)
    ties = need_low - higher
    threshold = middle * 1024 + lowest

    written = above
    tied = 0
    for block in range(0, count, BLOCK):
        at = block + tl.arange(0, BLOCK)
        key = sortable(tl.load(source + at, mask=at < count, other=0.0))
        inside = (at < count) & ((key >> 21).to(tl.int32) == chosen)
        rest = (key & 2097151).to(tl.int32)
        equal = (inside & (rest == threshold)).to(tl.int32)
        rank = tied + tl.cumsum(equal) - equal
        take = (inside & (rest > threshold)).to(tl.int32) + tl.where(rank < ties, equal, 0)
        column = at
        if fits:
            column = tl.load(pool_column_ptr + row.to(tl.int64) * POOL + at, mask=at < count, other=0)
        slot = written + tl.cumsum(take) - 1
        tl.store(index_ptr + row.to(tl.int64) * k + slot, column, mask=take != 0)
        written += tl.sum(take)
        tied += tl.sum(equal)
    slots = tl.arange(0, K_PADDED)
    tl.store(index_ptr + row.to(tl.int64) * k + slots, -1, mask=(slots >= length) & (slots < k))


@triton.jit
def block_maxima_kernel(
    logit_ptr, visible_ptr, best_ptr, logit_stride, best_stride, ENTRIES: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(1)
    visible = tl.load(visible_ptr + row)
    block = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = block[:, None] * ENTRIES + tl.arange(0, ENTRIES)[None, :]
    logits = tl.load(
        logit_ptr + row.to(tl.int64) * logit_stride + column, mask=column < visible, other=float("-inf")
    )
    best = tl.max(logits, axis=1)
    # The newest block is still filling: it is always a candidate.
    newest = (visible - 1) // ENTRIES
    best = tl.where(block == newest, float("inf"), best)
    tl.store(best_ptr + row.to(tl.int64) * best_stride + block, best, mask=block * ENTRIES < visible)


def topk(
    logits: Tensor, lengths: Tensor, k: int, *, num_splits: int | None = None, block: int = BLOCK
) -> Tensor:
    """Columns of the `k` largest logits per row, int32 [rows, k], -1 where a row has fewer.

    logits   fp32 [rows, columns], row stride may exceed columns
    lengths  int32 [rows]; columns at and after a row's length are not read
    """
    rows, columns = logits.shape
    if logits.stride(1) != 1:
        raise checks.KernelInputError(f"logits have strides {logits.stride()}, the last must be 1")
    if logits.dtype is not torch.float32:
        raise checks.KernelInputError(f"logits are {logits.dtype}, must be torch.float32")
    checks.require(lengths, "lengths", torch.int32, (rows,))
    if not 1 <= k <= 2048:
        raise checks.KernelInputError(f"k is {k}, must be 1 .. 2048")
    index = torch.empty(rows, k, dtype=torch.int32, device=logits.device)
    if rows == 0:
        return index
    splits = num_splits or default_splits(rows, columns, checks.num_sms(logits.device))
    span = triton.cdiv(triton.cdiv(max(columns, 1), splits), block) * block
    histogram = torch.empty(rows, splits, BINS.value, dtype=torch.int32, device=logits.device)
    pool_logit = torch.empty(rows, POOL, dtype=torch.float32, device=logits.device)
    pool_column = torch.empty(rows, POOL, dtype=torch.int32, device=logits.device)
    found = torch.empty(rows, 3, dtype=torch.int32, device=logits.device)
    stride = logits.stride(0)
    sizes = {"BLOCK": block, "num_warps": 8}
    count_kernel[(splits, rows)](logits, lengths, histogram, stride, span, SPLITS=splits, **sizes)
    pool = (pool_logit, pool_column, found)
    split_kernel[(splits, rows)](
        logits, lengths, histogram, index, *pool, stride, span, k, SPLITS=splits, POOL=POOL, **sizes
    )
    sizes["BLOCK"] = min(block, SETTLE_BLOCK)
    settle_kernel[(rows,)](
        logits, lengths, index, *pool, stride, k, K_PADDED=triton.next_power_of_2(k), POOL=POOL, **sizes
    )
    return index


def block_maxima(logits: Tensor, visible: Tensor, block_entries: int) -> Tensor:
    """Best logit of each block of entries, fp32 [rows, ceil(columns / block_entries)]; the newest block
    is +inf."""
    rows, columns = logits.shape
    checks.require(logits, "logits", torch.float32, (None, None))
    checks.require(visible, "visible", torch.int32, (rows,))
    blocks = triton.cdiv(columns, block_entries)
    best = torch.empty(rows, blocks, dtype=torch.float32, device=logits.device)
    if rows and blocks:
        block_maxima_kernel[(triton.cdiv(blocks, 256), rows)](
            logits, visible, best, logits.stride(0), blocks, ENTRIES=block_entries, BLOCK=256, num_warps=4
        )
    return best


def default_splits(rows: int, columns: int, sms: int) -> int:
    """Spans per row, a power of two at most 32: enough to fill the device, each at least four blocks long."""
    wanted = min(32, triton.cdiv(2 * sms, rows), max(1, columns // (4 * BLOCK)))
    return 1 << (max(1, wanted).bit_length() - 1)


def work(lengths: list[int], k: int) -> Work:
    """Each logit is read twice: once to count, once to collect. The threshold bin is not in the bound."""
    return Work(
        read_bytes=2 * 4 * sum(lengths),
        write_bytes=4 * k * len(lengths),
        # sortable key: compare-select, shift, or, xor; digit: shift; per pass and logit
        fp32_ops=2 * 5 * sum(lengths),
    )
