"""The attention core that `sparse_attention`, `hca_attention` and `swa_attention` launch with different
entry lists.

One softmax over two lists of 512-wide latents that are key and value at once: the sliding window
(slots), then selected slots, or every visible entry under a page table. One program takes 64 heads of
one query token and a range of entry blocks; entries are gathered and dequantised to bf16 on the way
(exact: 4 significand bits and a power of two fit bf16), so they cross HBM once in their stored form.
With several ranges per token, `combine` merges the partial sums. The per-head sink takes part in the
denominator only: out = Σ p·v / (Σ p + exp(sink - max)).

Two forms of the same sums, because accumulators live in different places: - `whole` (sm_100, tensor
memory): one program makes all 512 output dimensions as four [128 dims, heads] tiles, so P·V runs at the
full M = 128 rate. S stays [heads, entries]. - `halves` (sm_90, registers): [64, 512] fp32 would be half
of the register file, so two programs make 256 dimensions each and both compute S. Q·K is done twice
(1.5 × the FLOPs), the entries cross L2 twice and HBM once.

Left out: query RoPE before and inverse RoPE after (`reference.model` has them), and the FP4 query path.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from v4kernels import checks, layouts
from v4kernels.attention_halves import halves_kernel
from v4kernels.attention_whole import whole_kernel
from v4kernels.latents import sink_share
from v4kernels.shapes import HEAD_DIM
from v4kernels.work import Work

BLOCK_HEADS = 64
BLOCK_ENTRIES = 32  # with 64 either form is at the edge of spilling
MAX_SPLITS = 64
LOG2E = 1.4426950408889634


@triton.jit
def combine_kernel(
    partial_ptr,
    stat_ptr,
    sink_ptr,
    out_ptr,
    splits,
    HEADS: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    BLOCK_H: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    dim = tl.arange(0, 512)
    part = tl.arange(0, MAX_SPLITS)
    row = (token * splits + part)[:, None] * HEADS + head[None, :]
    there = (part < splits)[:, None]
    maxima = tl.load(stat_ptr + row * 2, mask=there, other=float("-inf"))
    totals = tl.load(stat_ptr + row * 2 + 1, mask=there, other=0.0)
    running_max = tl.max(maxima, axis=0)
    # No entry at all in any part: the sink takes everything and the output is 0.
    base = tl.where(running_max == float("-inf"), 0.0, running_max)
    total = tl.sum(totals * tl.exp2(maxima - base[None, :]), axis=0)
    acc = tl.zeros((BLOCK_H, 512), tl.float32)
    for s in range(splits):
        at = (token * splits + s) * HEADS + head
        weight = tl.exp2(tl.load(stat_ptr + at * 2) - base)
        acc += tl.load(partial_ptr + at[:, None] * 512 + dim[None, :]) * weight[:, None]
    share = sink_share(tl.load(sink_ptr + head), running_max, total)
    tl.store(
        out_ptr + (token * HEADS + head)[:, None] * 512 + dim[None, :], (acc * share[:, None]).to(tl.bfloat16)
    )


def default_form(device: torch.device) -> str:
    """`whole` where accumulators live in tensor memory (and in the interpreter), else `halves`."""
    return "whole" if checks.capability(device) >= 100 else "halves"


def stages(form: str) -> int:
    """Blocks in flight: Triton 3.6 cannot pipeline the `whole` form (an assertion of its scheduler)."""
    return 1 if form == "whole" and checks.triton_release() < (3, 7) else 2


def default_splits(programs: int, blocks: int, sms: int) -> int:
    """Ranges per token, a power of two: fill the device, but give each range at least two blocks."""
    wanted = min(MAX_SPLITS, sms // max(1, programs), blocks // 2)
    return 1 << (max(1, wanted).bit_length() - 1)


def launch(
    q: Tensor,
    sinks: Tensor,
    window: layouts.PagedCache,
    window_slots: Tensor,
    extra: layouts.PagedCache | None,
    *,
    extra_slots: Tensor | None = None,
    page_table: Tensor | None = None,
    token_request: Tensor | None = None,
    visible: Tensor | None = None,
    max_visible: int = 0,
    num_splits: int | None = None,
    form: str | None = None,
) -> Tensor:
    """bf16 [tokens, heads, 512]; the three modules that call this say what the arguments mean."""
    tokens, heads, _ = q.shape
    checks.require(q, "q", torch.bfloat16, (tokens, heads, HEAD_DIM))
    checks.choose(heads % BLOCK_HEADS, "heads % 64", (0,))
    checks.require(sinks, "sinks", torch.float32, (heads,))
    checks.require(window_slots, "window_slots", torch.int32, (tokens, None))
    window.check("window")
    form = form or default_form(q.device)
    checks.choose(form, "form", ("whole", "halves"))
    dense = page_table is not None
    kind = "none" if extra is None else "dense" if dense else "slots"
    columns = 0
    if extra is not None:
        extra.check("extra")
        if form == "halves" and extra.fmt is not window.fmt:
            raise checks.KernelInputError(
                f"{extra.fmt.name} entries beside {window.fmt.name} windows need the `whole` form: sm_100 on"
            )
        if dense:
            checks.require(page_table, "page_table", torch.int32, (None, None))
            checks.require(token_request, "token_request", torch.int32, (tokens,))
            checks.require(visible, "visible", torch.int32, (tokens,))
            columns = max_visible
        else:
            checks.require(extra_slots, "extra_slots", torch.int32, (tokens, None))
            columns = extra_slots.shape[1]
    out = torch.empty_like(q)
    if tokens == 0:
        return out
    block = BLOCK_ENTRIES
    parts = 2 if form == "halves" else 1
    blocks = triton.cdiv(window_slots.shape[1], block) + triton.cdiv(columns, block)
    head_blocks = heads // BLOCK_HEADS
    splits = num_splits or default_splits(tokens * head_blocks * parts, blocks, checks.num_sms(q.device))
    if splits > MAX_SPLITS:
        raise checks.KernelInputError(f"num_splits is {splits}, must be at most {MAX_SPLITS}")
    floats = tokens * splits * heads if splits > 1 else 0
    partial = torch.empty(floats, HEAD_DIM, dtype=torch.float32, device=q.device)
    stats = torch.empty(floats, 2, dtype=torch.float32, device=q.device)
    other = window if extra is None else extra
    nothing = window_slots
    kernel = whole_kernel if form == "whole" else halves_kernel
    kernel[(tokens, head_blocks, splits * parts)](
        q,
        *window.views(),
        window_slots,
        *other.views(),
        nothing if extra_slots is None else extra_slots,
        nothing if page_table is None else page_table,
        nothing if token_request is None else token_request,
        nothing if visible is None else visible,
        sinks,
        out,
        partial,
        stats,
        HEAD_DIM**-0.5 * LOG2E,
        window_slots.shape[1],
        0 if dense else columns,
        0 if page_table is None else page_table.stride(0),
        triton.cdiv(blocks, splits),
        HEADS=heads,
        EXTRA=kind,
        WINDOW_FORMAT=window.fmt.name,
        WINDOW_SHIFT=window.shift,
        WINDOW_PAGE_BYTES=window.page_bytes,
        EXTRA_FORMAT=other.fmt.name,
        EXTRA_SHIFT=other.shift,
        EXTRA_PAGE_BYTES=other.page_bytes,
        SPLIT=splits > 1,
        BLOCK_H=BLOCK_HEADS,
        BLOCK_N=block,
        num_warps=8,
        num_stages=stages(form),
    )
    if splits > 1:
        combine_kernel[(tokens, heads // 8)](
            partial, stats, sinks, out, splits, HEADS=heads, MAX_SPLITS=MAX_SPLITS, BLOCK_H=8, num_warps=4
        )
    return out


def attention_work(heads: int, pairs: int, tokens: int, entry_bytes: int) -> Work:
    """Counts for `pairs` (query token, entry) pairs and `entry_bytes` of distinct entries.

    FP32 pipe per pair and head: scale, max, subtract, exp2, sum, convert (6); the rescaling of
    accumulators, once per block of 32 entries, is 512 / 32 = 16 multiplies a pair. Dequantisation is per
    pair: 512 converts and scalings.
    """
    return Work(
        read_bytes=entry_bytes + tokens * heads * HEAD_DIM * 2,
        write_bytes=tokens * heads * HEAD_DIM * 2,
        matrix_flops=4 * pairs * heads * HEAD_DIM,
        fp32_ops=pairs * (heads * (6 + 16) + 2 * HEAD_DIM),
    )
