"""mHC, the four-stream residual of V4: mixing weights, collapse before a sublayer, expansion after it.

`mix` multiplies the flattened streams [4·h] with 24 learned rows (4 pre, 4 post, 16 comb) and takes
their square sum for the unweighted RMSNorm, split over the long axis so that one decode token still
fills the device. `collapse` finishes the weights (sigmoids; softmax, then Sinkhorn to a doubly
stochastic 4x4) and makes the sublayer's input Σ pre_i·x_i. `expand` gives x'_k = post_k·y + Σ_j comb[j,
k]·x_j after the sublayer. Two of each per layer.

fp32 weights times bf16 streams: `tf32x3` keeps fp32 accuracy on the tensor cores.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from v4kernels import checks
from v4kernels.shapes import SINKHORN_ITERATIONS, STREAMS
from v4kernels.work import Work

MIXES = 24
COLUMNS = tl.constexpr(32)  # 24 mixes, the square sum in column 24, padding
BLOCK_K = 128


@triton.jit
def mix_kernel(x_ptr, fn_ptr, partial_ptr, tokens, width, span, BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr):
    token = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    split = tl.program_id(1)
    column = tl.arange(0, COLUMNS)
    rows = tl.minimum(token, tokens - 1).to(tl.int64)
    acc = tl.zeros((BLOCK_T, COLUMNS), tl.float32)
    squares = tl.zeros((BLOCK_T,), tl.float32)
    for start in range(split * span, tl.minimum(split * span + span, width), BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rows[:, None] * width + k[None, :]).to(tl.float32)
        fn = tl.load(fn_ptr + column[:, None] * width + k[None, :], mask=(column < 24)[:, None], other=0.0)
        acc = tl.dot(x, fn.T, acc, input_precision="tf32x3")
        squares += tl.sum(x * x, axis=1)
    acc = tl.where((column == 24)[None, :], squares[:, None], acc)
    at = (split * tokens + rows)[:, None] * COLUMNS + column[None, :]
    tl.store(partial_ptr + at, acc, mask=(token < tokens)[:, None])


@triton.jit
def collapse_kernel(
    x_ptr,
    partial_ptr,
    base_ptr,
    scale_ptr,
    post_ptr,
    comb_ptr,
    out_ptr,
    tokens,
    hidden,
    norm_eps,
    eps,
    SPLITS: tl.constexpr,
    ITERATIONS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    four = tl.arange(0, 4)
    cell = four[:, None] * 4 + four[None, :]
    pre = tl.zeros((4,), tl.float32)
    post = tl.zeros((4,), tl.float32)
    comb = tl.zeros((4, 4), tl.float32)
    squares = 0.0
    for split in range(SPLITS):
        row = partial_ptr + (split * tokens + token) * COLUMNS
        pre += tl.load(row + four)
        post += tl.load(row + 4 + four)
        comb += tl.load(row + 8 + cell)
        squares += tl.load(row + 24)
    norm = 1.0 / tl.sqrt(squares / (4 * hidden) + norm_eps)
    pre = tl.sigmoid(pre * norm * tl.load(scale_ptr) + tl.load(base_ptr + four)) + eps
    post = 2.0 * tl.sigmoid(post * norm * tl.load(scale_ptr + 1) + tl.load(base_ptr + 4 + four))
    comb = comb * norm * tl.load(scale_ptr + 2) + tl.load(base_ptr + 8 + cell)
    comb = tl.exp(comb - tl.max(comb, axis=1)[:, None])
    comb = comb / tl.sum(comb, axis=1)[:, None] + eps
    comb = comb / (tl.sum(comb, axis=0)[None, :] + eps)
    for _ in range(ITERATIONS - 1):
        comb = comb / (tl.sum(comb, axis=1)[:, None] + eps)
        comb = comb / (tl.sum(comb, axis=0)[None, :] + eps)
    if tl.program_id(1) == 0:
        tl.store(post_ptr + token * 4 + four, post)
        tl.store(comb_ptr + token * 16 + cell, comb)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    streams = tl.load(x_ptr + (token * 4 + four)[:, None] * hidden + at[None, :]).to(tl.float32)
    tl.store(out_ptr + token * hidden + at, tl.sum(streams * pre[:, None], axis=0).to(tl.bfloat16))


@triton.jit
def expand_kernel(x_ptr, y_ptr, post_ptr, comb_ptr, out_ptr, hidden, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    four = tl.arange(0, 4)
    y = tl.load(y_ptr + token * hidden + at).to(tl.float32)
    out = tl.load(post_ptr + token * 4 + four)[:, None] * y[None, :]
    for j in tl.static_range(4):
        x = tl.load(x_ptr + (token * 4 + j) * hidden + at).to(tl.float32)
        out += tl.load(comb_ptr + token * 16 + j * 4 + four)[:, None] * x[None, :]
    tl.store(out_ptr + (token * 4 + four)[:, None] * hidden + at[None, :], out.to(tl.bfloat16))


def collapse(
    x: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    *,
    norm_eps: float = 1e-6,
    eps: float = 1e-6,
    iterations: int = SINKHORN_ITERATIONS,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(collapsed bf16 [tokens, hidden], post fp32 [tokens, 4], comb fp32 [tokens, 4, 4]).

    x      bf16 [tokens, 4, hidden]
    fn     fp32 [24, 4 · hidden]
    base   fp32 [24]
    scale  fp32 [3], of pre, post and comb
    """
    tokens, _, hidden = x.shape
    width = STREAMS * hidden
    checks.require(x, "x", torch.bfloat16, (tokens, STREAMS, hidden))
    checks.require(fn, "fn", torch.float32, (MIXES, width))
    checks.require(base, "base", torch.float32, (MIXES,))
    checks.require(scale, "scale", torch.float32, (3,))
    block = hidden_block(hidden)
    device = x.device
    post = torch.empty(tokens, STREAMS, dtype=torch.float32, device=device)
    comb = torch.empty(tokens, STREAMS, STREAMS, dtype=torch.float32, device=device)
    out = torch.empty(tokens, hidden, dtype=torch.bfloat16, device=device)
    if tokens == 0:
        return out, post, comb
    block_t = 16 if tokens <= 1024 else 64
    token_blocks = triton.cdiv(tokens, block_t)
    splits = num_splits or default_splits(token_blocks, width, checks.num_sms(device))
    span = triton.cdiv(triton.cdiv(width, splits), BLOCK_K) * BLOCK_K
    partial = torch.empty(splits, tokens, COLUMNS.value, dtype=torch.float32, device=device)
    mix_kernel[(token_blocks, splits)](
        x,
        fn,
        partial,
        tokens,
        width,
        span,
        BLOCK_T=block_t,
        BLOCK_K=BLOCK_K,
        num_warps=8 if block_t == 64 else 4,
        num_stages=mix_stages(block_t),
    )
    collapse_kernel[(tokens, hidden // block)](
        x,
        partial,
        base,
        scale,
        post,
        comb,
        out,
        tokens,
        hidden,
        norm_eps,
        eps,
        SPLITS=splits,
        ITERATIONS=iterations,
        BLOCK=block,
        num_warps=4,
    )
    return out, post, comb


def expand(x: Tensor, y: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """bf16 [tokens, 4, hidden]: the streams after a sublayer with output `y` bf16 [tokens, hidden]."""
    tokens, _, hidden = x.shape
    checks.require(x, "x", torch.bfloat16, (tokens, STREAMS, hidden))
    checks.require(y, "y", torch.bfloat16, (tokens, hidden))
    checks.require(post, "post", torch.float32, (tokens, STREAMS))
    checks.require(comb, "comb", torch.float32, (tokens, STREAMS, STREAMS))
    out = torch.empty_like(x)
    block = hidden_block(hidden)
    if tokens:
        expand_kernel[(tokens, hidden // block)](x, y, post, comb, out, hidden, BLOCK=block, num_warps=4)
    return out


def mix_stages(block_t: int) -> int:
    """Tiles in flight; with three, Triton 3.6 spills in the large ones."""
    return 2 if block_t == 64 else 3


def hidden_block(hidden: int) -> int:
    """Columns per program: 1024, or what divides `hidden` in tests."""
    for block in (1024, 512, 256, 128, 64):
        if hidden % block == 0:
            return block
    raise checks.KernelInputError(f"hidden is {hidden}, must be a multiple of 64")


def default_splits(token_blocks: int, width: int, sms: int) -> int:
    """Parts of the long axis, a power of two at most 32, each at least eight tiles."""
    wanted = min(32, triton.cdiv(sms, token_blocks), max(1, width // (8 * BLOCK_K)))
    return 1 << (max(1, wanted).bit_length() - 1)


def work(tokens: int, hidden: int) -> Work:
    """One collapse and one expand (a layer has two of each). The streams are read for mixing, collapse
    and expand."""
    streams = tokens * STREAMS * hidden * 2
    return Work(
        read_bytes=3 * streams + tokens * hidden * 2 + MIXES * STREAMS * hidden * 4,
        write_bytes=streams + tokens * hidden * 2,
        matrix_flops=2 * tokens * STREAMS * hidden * MIXES,
        # square sum 1, collapse 1 per stream element; expand 5 per output element
        fp32_ops=tokens * STREAMS * hidden * (1 + 1 + 5),
    )
