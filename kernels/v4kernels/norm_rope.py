"""What stands between the matrices of an attention layer: RMSNorm, RoPE, quantisation, in one pass.

A row is a token, or a head of one. The steps are those that engines fuse: the layer's input and the low-rank
query are normalised and quantised for the next GEMM, a query head is normalised without weights and
turned, the latent of the window is normalised, turned and quantised, the output of attention is turned back.
Quantised rows are e4m3 with one ue8m0 scale per 128 values, which block-FP8 GEMMs read.

Left out: the address of the cache entry (the bytes are the same), the Hadamard rotation of index queries,
and residual additions, which are mHC's.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from v4kernels import checks
from v4kernels.tile import e4m3_scale_byte, power_of_two, to_e4m3
from v4kernels.work import Work

GROUP = 128  # values that share a scale
NORMS = ("none", "unit", "weighted")
TURNS = ("none", "forward", "back")


@triton.jit
def norm_rope_kernel(
    x_ptr,
    weight_ptr,
    rope_ptr,
    position_ptr,
    out_ptr,
    scale_ptr,
    width,
    heads,
    eps,
    NORM: tl.constexpr,
    TURN: tl.constexpr,
    QUANTISE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    x = tl.load(x_ptr + row * width + column, mask=inside, other=0.0).to(tl.float32)
    if NORM != "none":
        x = x * tl.rsqrt(tl.sum(x * x, axis=0) / width + eps)
    if NORM == "weighted":
        x = x * tl.load(weight_ptr + column, mask=inside, other=0.0)
    if TURN != "none":
        # Interleaved pairs of the last 64 channels, as in the compressor.
        position = tl.load(position_ptr + row // heads).to(tl.int64)
        even, odd = tl.split(x.reshape(BLOCK // 2, 2))
        pair = tl.arange(0, BLOCK // 2) - (BLOCK // 2 - 32)
        cos = tl.load(rope_ptr + position * 64 + pair, mask=pair >= 0, other=1.0)
        sin = tl.load(rope_ptr + position * 64 + 32 + pair, mask=pair >= 0, other=0.0)
        if TURN == "back":
            sin = -sin
        x = tl.join(even * cos - odd * sin, odd * cos + even * sin).reshape(BLOCK)
    if QUANTISE:
        groups = x.reshape(BLOCK // 128, 128)
        byte = e4m3_scale_byte(tl.max(tl.abs(groups), axis=1))
        scaled = to_e4m3(groups * power_of_two(254 - byte)[:, None]).reshape(BLOCK)
        tl.store(out_ptr + row * width + column, scaled, mask=inside)
        group = tl.arange(0, BLOCK // 128)
        tl.store(scale_ptr + row * (width // 128) + group, byte.to(tl.uint8), mask=group < width // 128)
    else:
        tl.store(out_ptr + row * width + column, x.to(tl.bfloat16), mask=inside)


def norm_rope(
    x: Tensor,
    *,
    weight: Tensor | None = None,
    norm: str = "none",
    turn: str = "none",
    rope: Tensor | None = None,
    positions: Tensor | None = None,
    quantise: bool = False,
    eps: float = 1e-6,
) -> tuple[Tensor, Tensor | None]:
    """(rows, ue8m0 scales uint8 [rows, width / 128] or None): e4m3 [rows, width] if `quantise`, else bf16.

    x          bf16 [tokens · heads, width], a multiple of 128; a power of two where it is turned
    weight     fp32 [width], for norm "weighted"
    rope       fp32 [positions, 64]: 32 cosines, 32 sines, for turn "forward" and "back"
    positions  int32 [tokens]
    """
    checks.choose(norm, "norm", NORMS)
    checks.choose(turn, "turn", TURNS)
    rows, width = x.shape
    checks.require(x, "x", torch.bfloat16, (rows, width))
    checks.choose(width % GROUP, "width % 128", (0,))
    if norm == "weighted":
        if weight is None:
            raise checks.KernelInputError("weight is None, but norm is 'weighted'")
        checks.require(weight, "weight", torch.float32, (width,))
    heads = 1
    if turn != "none":
        if rope is None or positions is None:
            raise checks.KernelInputError(f"turn is {turn!r}: rope and positions must be given")
        checks.require(rope, "rope", torch.float32, (None, 64))
        checks.require(positions, "positions", torch.int32, (None,))
        checks.choose(width & (width - 1), "width (a power of two where it is turned)", (0,))
        tokens = positions.shape[0]
        checks.choose(rows % max(tokens, 1), "rows % tokens", (0,))
        heads = rows // max(tokens, 1)
    out = torch.empty(rows, width, dtype=torch.float8_e4m3fn if quantise else torch.bfloat16, device=x.device)
    scale = torch.empty(rows, width // GROUP, dtype=torch.uint8, device=x.device) if quantise else None
    block = triton.next_power_of_2(width)
    if rows:
        norm_rope_kernel[(rows,)](
            x,
            x if weight is None else weight,
            x if rope is None else rope,
            x if positions is None else positions,
            out,
            x if scale is None else scale,
            width,
            heads,
            eps,
            NORM=norm,
            TURN=turn,
            QUANTISE=quantise,
            BLOCK=block,
            num_warps=warps(block),
        )
    return out, scale


def warps(block: int) -> int:
    """At most 32 values a thread."""
    return max(1, min(16, block // 1024))


def work(rows: int, width: int, *, norm: str, turn: str, quantise: bool) -> Work:
    """Per value: square, sum and scale of a norm (3), a turn (3, of 64 channels), maximum and scale of
    quantisation (2).
    """
    values = rows * width
    ops = values * (3 * (norm != "none") + 2 * quantise) + rows * 64 * 3 * (turn != "none")
    scales = values // GROUP if quantise else 0
    return Work(read_bytes=2 * values, write_bytes=values * (1 if quantise else 2) + scales, fp32_ops=ops)
