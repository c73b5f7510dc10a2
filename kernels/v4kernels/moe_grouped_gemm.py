"""Routed experts: grouped GEMM of MXFP4 weights, and the SwiGLU between its two uses.

Rows are (token, expert) pairs sorted by expert; a plan lists blocks of rows of one expert, so that no
block mixes experts and empty experts cost nothing. The weights are the M side (128 of them per program)
and tokens the N side: a decode step has few tokens per expert, and the tensor core wants M = 128 but
takes N from 16.

Activations: `fp8` (MXFP8, e4m3 with ue8m0 per 32: tcgen05 kind::mxf8f6f4), `fp4` (MXFP4: kind::mxf4),
both sm_100 only; `bf16` (weights widened on chip, exact: wgmma on sm_90), which is how Hopper serves
FP4 experts. Left out: the router, dispatch and combine over ranks, and the shared expert, which is a
dense FP8 GEMM.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from v4kernels import checks
from v4kernels.shapes import ModelShape
from v4kernels.tile import dot_bf16, e2m1_code, e2m1_scale_byte, e4m3_scale_byte, power_of_two, to_e4m3
from v4kernels.work import Work

ACTIVATIONS = ("fp8", "fp4", "bf16")
BLOCK_OUT = 128
BLOCK_K = 128


@triton.jit
def grouped_gemm_kernel(
    x_ptr,
    x_scale_ptr,
    w_ptr,
    w_scale_ptr,
    block_ptr,
    out_ptr,
    outputs,
    inputs,
    ACTIVATION: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_I: tl.constexpr,
):
    block = tl.program_id(0)
    expert = tl.load(block_ptr + block * 3).to(tl.int64)
    first = tl.load(block_ptr + block * 3 + 1)
    rows = tl.load(block_ptr + block * 3 + 2)
    output = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    token = tl.arange(0, BLOCK_T)
    # Rows past the block's end repeat its last one: their results are not stored.
    row = (first + tl.minimum(token, rows - 1)).to(tl.int64)
    w_row = expert * outputs + output
    nibbles = tl.arange(0, BLOCK_I // 2)
    scales = tl.arange(0, BLOCK_I // 32)
    acc = tl.zeros((BLOCK_O, BLOCK_T), tl.float32)
    for start in range(0, inputs, BLOCK_I):
        w = tl.load(w_ptr + w_row[:, None] * (inputs // 2) + start // 2 + nibbles[None, :])
        w_scale = tl.load(w_scale_ptr + w_row[:, None] * (inputs // 32) + start // 32 + scales[None, :])
        if ACTIVATION == "bf16":
            code = tl.join(w & 0xF, w >> 4).reshape(BLOCK_O, BLOCK_I).to(tl.int32)
            # s|ee|m put at the low exponent bits of an fp32 is the value times 2^-126, its subnormal 0.5
            # included.
            bits = ((code & 8) << 28) | ((code & 7) << 22)
            value = bits.to(tl.float32, bitcast=True) * 85070591730234615865843651857942052864.0
            wide = value.reshape(BLOCK_O, BLOCK_I // 32, 32) * power_of_two(w_scale)[:, :, None]
            wide = wide.reshape(BLOCK_O, BLOCK_I).to(tl.bfloat16)
            x = tl.load(x_ptr + row[:, None] * inputs + start + tl.arange(0, BLOCK_I)[None, :])
            acc = dot_bf16(wide, x.T, acc)
        else:
            x_scale = tl.load(x_scale_ptr + row[:, None] * (inputs // 32) + start // 32 + scales[None, :])
            if ACTIVATION == "fp8":
                x = tl.load(x_ptr + row[:, None] * inputs + start + tl.arange(0, BLOCK_I)[None, :])
                acc = tl.dot_scaled(w, w_scale, "e2m1", x.T, x_scale, "e4m3", acc)
            else:
                x = tl.load(x_ptr + row[:, None] * (inputs // 2) + start // 2 + nibbles[None, :])
                acc = tl.dot_scaled(w, w_scale, "e2m1", x.T, x_scale, "e2m1", acc)
    at = out_ptr + row[None, :] * outputs + output[:, None]
    tl.store(at, acc.to(tl.bfloat16), mask=(token < rows)[None, :])


@triton.jit
def swiglu_kernel(
    gate_up_ptr, out_ptr, scale_ptr, width, limit, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_up_ptr + row * 2 * width + at).to(tl.float32)
    up = tl.load(gate_up_ptr + row * 2 * width + width + at).to(tl.float32)
    gate = tl.minimum(gate, limit)
    up = tl.minimum(tl.maximum(up, -limit), limit)
    y = gate / (1.0 + tl.exp(-gate)) * up
    if ACTIVATION == "bf16":
        tl.store(out_ptr + row * width + at, y.to(tl.bfloat16))
    else:
        groups = y.reshape(BLOCK // 32, 32)
        amax = tl.max(tl.abs(groups), axis=1)
        group = tl.program_id(1) * (BLOCK // 32) + tl.arange(0, BLOCK // 32)
        if ACTIVATION == "fp8":
            byte = e4m3_scale_byte(amax)
            scaled = to_e4m3(groups * power_of_two(254 - byte)[:, None])
            tl.store(out_ptr + row * width + at, scaled.reshape(BLOCK))
        else:
            byte = e2m1_scale_byte(amax)
            code = e2m1_code(groups * power_of_two(254 - byte)[:, None])
            low, high = tl.split(code.reshape(BLOCK // 2, 2))
            half = tl.program_id(1) * (BLOCK // 2) + tl.arange(0, BLOCK // 2)
            tl.store(out_ptr + row * (width // 2) + half, (low | (high << 4)).to(tl.uint8))
        tl.store(scale_ptr + row * (width // 32) + group, byte.to(tl.uint8))


@dataclass(frozen=True, slots=True)
class Blocks:
    """Row blocks of a distribution: int32 [blocks, 3] expert, first row, rows (1 .. block_tokens)."""

    table: Tensor
    block_tokens: int
    rows: int


def plan_blocks(
    counts: list[int], device: torch.device | str = "cpu", block_tokens: int | None = None
) -> Blocks:
    """Cut each expert's rows into blocks; the width follows the mean of the experts that are hit."""
    hit = [c for c in counts if c]
    mean = sum(hit) / len(hit) if hit else 0
    width = block_tokens or (16 if mean <= 16 else 32 if mean <= 32 else 64 if mean <= 64 else 128)
    table, row = [], 0
    for expert, count in enumerate(counts):
        table += [[expert, row + i, min(width, count - i)] for i in range(0, count, width)]
        row += count
    return Blocks(torch.tensor(table, dtype=torch.int32, device=device).view(-1, 3), width, row)


def expert_counts(tokens: int, experts: int, per_token: int, skew: float) -> list[int]:
    """Rows per expert when popularity falls as rank^-skew (0: balanced), largest remainders, at most
    `tokens` each."""
    weights = [(rank + 1.0) ** -skew for rank in range(experts)]
    left, counts, open_experts = tokens * per_token, [0] * experts, list(range(experts))
    while left:
        total = sum(weights[e] for e in open_experts)
        shares = {e: left * weights[e] / total for e in open_experts}
        add = {e: min(int(shares[e]), tokens - counts[e]) for e in open_experts}
        if not any(add.values()):
            add = dict.fromkeys(sorted(open_experts, key=lambda e: (-shares[e], e))[:left], 1)
        for e, n in add.items():
            counts[e] += n
            left -= n
        open_experts = [e for e in open_experts if counts[e] < tokens]
    return counts


def grouped_gemm(
    x: Tensor, x_scale: Tensor | None, w: Tensor, w_scale: Tensor, blocks: Blocks, *, activation: str
) -> Tensor:
    """bf16 [rows, outputs] = x · w[expert]ᵀ.

    x        [rows, inputs] e4m3 (fp8) or bf16, or uint8 [rows, inputs / 2] packed e2m1 (fp4)
    x_scale  uint8 [rows, inputs / 32] ue8m0; None for bf16
    w        uint8 [experts, outputs, inputs / 2] packed e2m1
    w_scale  uint8 [experts, outputs, inputs / 32] ue8m0
    """
    checks.choose(activation, "activation", ACTIVATIONS)
    experts, outputs, half = w.shape
    inputs = half * 2
    rows = blocks.rows
    checks.require(w, "w", torch.uint8, (experts, outputs, half))
    checks.require(w_scale, "w_scale", torch.uint8, (experts, outputs, inputs // 32))
    element = {"fp8": torch.float8_e4m3fn, "fp4": torch.uint8, "bf16": torch.bfloat16}[activation]
    checks.require(x, "x", element, (rows, half if activation == "fp4" else inputs))
    checks.choose(inputs % BLOCK_K, "inputs % 128", (0,))
    checks.choose(outputs % BLOCK_OUT, "outputs % 128", (0,))
    if activation != "bf16":
        if x_scale is None:
            raise checks.KernelInputError(
                f"x_scale is None, but {activation} activations have a scale per 32"
            )
        checks.require(x_scale, "x_scale", torch.uint8, (rows, inputs // 32))
        if checks.capability(x.device) < 100:
            raise checks.KernelInputError(
                f"{activation} activations need sm_100: sm_90 has no block scales; use bf16"
            )
    out = torch.empty(rows, outputs, dtype=torch.bfloat16, device=x.device)
    if rows:
        grouped_gemm_kernel[(blocks.table.shape[0], outputs // BLOCK_OUT)](
            x,
            w_scale if x_scale is None else x_scale,
            w,
            w_scale,
            blocks.table,
            out,
            outputs,
            inputs,
            ACTIVATION=activation,
            BLOCK_T=blocks.block_tokens,
            BLOCK_O=BLOCK_OUT,
            BLOCK_I=BLOCK_K,
            num_warps=8 if blocks.block_tokens == 128 and activation == "bf16" else 4,
            num_stages=3,
        )
    return out


def swiglu(gate_up: Tensor, *, limit: float = 10.0, activation: str) -> tuple[Tensor, Tensor | None]:
    """(SiLU(min(gate, limit)) · clamp(up), scales) in the format of the second GEMM.

    gate_up  bf16 [rows, 2 · width]
    """
    checks.choose(activation, "activation", ACTIVATIONS)
    rows, double = gate_up.shape
    width = double // 2
    checks.require(gate_up, "gate_up", torch.bfloat16, (rows, double))
    block = 256
    checks.choose(width % block, "width % 256", (0,))
    element = {"fp8": torch.float8_e4m3fn, "fp4": torch.uint8, "bf16": torch.bfloat16}[activation]
    out = torch.empty(
        rows, width // 2 if activation == "fp4" else width, dtype=element, device=gate_up.device
    )
    scale = None
    if activation != "bf16":
        scale = torch.empty(rows, width // 32, dtype=torch.uint8, device=gate_up.device)
    if rows:
        swiglu_kernel[(rows, width // block)](
            gate_up,
            out,
            gate_up if scale is None else scale,
            width,
            limit,
            ACTIVATION=activation,
            BLOCK=block,
            num_warps=4,
        )
    return out, scale


def work(counts: list[int], shape: ModelShape, activation: str) -> Work:
    """Both GEMMs and the SwiGLU of one layer's routed experts on this rank; each expert hit is read once."""
    hidden, width = shape.hidden, shape.expert_dim
    rows, hit = sum(counts), sum(1 for c in counts if c)
    weights = 3 * hidden * width
    byte = {"fp8": 1 + 1 / 32, "fp4": 0.5 + 1 / 32, "bf16": 2.0}[activation]
    return Work(
        read_bytes=hit * (weights // 2 + weights // 32)
        + int(rows * (hidden + width) * byte)
        + rows * 4 * width,
        write_bytes=rows * (4 * width + 2 * hidden) + int(rows * width * byte),
        matrix_flops=2 * rows * weights,
        fp32_ops=rows * width * 12,
    )
