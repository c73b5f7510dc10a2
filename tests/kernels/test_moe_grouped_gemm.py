"""Routed experts: grouped GEMM for each activation format, SwiGLU, and the distributions of tokens over
experts."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from v4kernels import checks, numeric, quant
from v4kernels import moe_grouped_gemm as kernel
from v4kernels.reference import moe_grouped_gemm as reference
from v4kernels.shapes import V4_FLASH, V4_PRO


def activations(rng, rows, inputs, activation):
    """(tensor, scales, decoded fp32 values)."""
    x = torch.randn(rows, inputs, generator=rng) * (0.1 + torch.rand(rows, 1, generator=rng) * 8)
    if activation == "bf16":
        return x.to(torch.bfloat16), None, x.to(torch.bfloat16).float()
    if activation == "fp8":
        data, scale = quant.to_e4m3(x, 32)
        return data.view(torch.float8_e4m3fn), scale, quant.from_e4m3(data, scale)
    data, scale = quant.to_mxfp4(x)
    return data, scale, quant.from_mxfp4(data, scale)


def check_gemm(device, rng, activation, counts, inputs, outputs, block_tokens):
    if device.type == "cuda" and activation != "bf16" and checks.capability(device) < 100:
        pytest.skip("block-scaled products need sm_100")
    w, w_scale = quant.to_mxfp4(torch.randn(len(counts), outputs, inputs, generator=rng))
    x, x_scale, values = activations(rng, sum(counts), inputs, activation)
    blocks = kernel.plan_blocks(counts, device, block_tokens)
    got = kernel.grouped_gemm(
        x.to(device),
        None if x_scale is None else x_scale.to(device),
        w.to(device),
        w_scale.to(device),
        blocks,
        activation=activation,
    )
    want, magnitude = reference.grouped_gemm(values, quant.from_mxfp4(w, w_scale), counts)
    # Products of decoded values are exact in fp32 (at most 4 + 2, or 8 + 2, significand bits); the sum of
    # `inputs` is not, and the store rounds to bf16.
    bound = numeric.accumulation_factor(inputs, numeric.U_FP32) * magnitude
    bound += numeric.bf16_roundoff(device) * want.abs()
    result = numeric.deviation(got, want, bound)
    assert result.ok, result


@pytest.mark.parametrize("activation", kernel.ACTIVATIONS)
@pytest.mark.parametrize("block_tokens", [16, 64])
def test_gemm(device, rng, activation, block_tokens):
    """Empty experts, a single row, a full block, a block and one row."""
    counts = [0, 1, block_tokens, 0, 5, block_tokens + 1]
    check_gemm(device, rng, activation, counts, 256, 128, block_tokens)


@settings(max_examples=6, deadline=None)
@given(
    activation=st.sampled_from(kernel.ACTIVATIONS),
    counts=st.lists(st.integers(0, 20), min_size=1, max_size=4).filter(any),
    seed=st.integers(0, 1000),
)
def test_any_small_distribution(activation, counts, seed):
    """Random rows per expert."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check_gemm(device, torch.Generator().manual_seed(seed), activation, counts, 128, 128, None)


@pytest.mark.parametrize("activation", kernel.ACTIVATIONS)
def test_swiglu(device, rng, activation):
    """Clamped gate and up; the output is quantised for the second GEMM."""
    gate_up = (torch.randn(3, 1024, generator=rng) * 8).to(torch.bfloat16)
    assert (gate_up.abs() > 10).any()
    got, scale = kernel.swiglu(gate_up.to(device), limit=10.0, activation=activation)
    want = reference.swiglu(gate_up.double(), 10.0)
    if activation == "bf16":
        values, bound = got, numeric.bf16_roundoff(device) * want.abs() + 1e-5
    else:
        amax = want.abs().unflatten(1, (-1, 32)).amax(-1, keepdim=True).expand(-1, -1, 32).flatten(1)
        if activation == "fp8":
            values = quant.from_e4m3(got.cpu().view(torch.uint8), scale.cpu())
            bound = numeric.U_E4M3 * 2 * want.abs() + amax / 448 * 2**-8
        else:
            values = quant.from_mxfp4(got.cpu(), scale.cpu())
            # Steps of e2m1 are at most 2 of a maximum of 6, and the scale is within a factor 2 of amax / 6.
            bound = 2 * amax / 6 + 1e-5
    result = numeric.deviation(values, want, bound)
    assert result.ok, result
    assert numeric.similarity_gap(values, want) < (2e-2 if activation == "fp4" else 2e-3)


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 300),
    experts=st.integers(6, 64),
    skew=st.sampled_from([0.0, 0.5, 1.01, 1.2, 3.0]),
)
def test_distribution_conserves_rows(tokens, experts, skew):
    """tokens · 6 rows, no expert twice for one token, popularity never rises with rank, balanced within
    one."""
    counts = kernel.expert_counts(tokens, experts, 6, skew)
    assert sum(counts) == tokens * 6
    assert max(counts) <= tokens
    assert all(a >= b - 1 for a, b in pairwise(counts))
    if skew == 0.0:
        assert max(counts) - min(counts) <= 1


def test_blocks_cover_each_row_once():
    """No block crosses an expert; together they are the rows in order."""
    counts = [3, 0, 40, 17, 0, 1]
    blocks = kernel.plan_blocks(counts, block_tokens=16)
    row = 0
    for expert, first, rows in blocks.table.tolist():
        assert first == row
        assert 1 <= rows <= 16
        row += rows
        assert row <= sum(counts[: expert + 1])
    assert row == blocks.rows == sum(counts)


def test_launcher_refuses(device):
    """Activations without their scales, inputs that are not whole tiles."""
    w = torch.zeros(1, 128, 64, dtype=torch.uint8, device=device)
    scale = torch.zeros(1, 128, 4, dtype=torch.uint8, device=device)
    blocks = kernel.plan_blocks([1], device)
    x = torch.zeros(1, 128, device=device).to(torch.float8_e4m3fn)
    with pytest.raises(checks.KernelInputError, match="x_scale is None"):
        kernel.grouped_gemm(x, None, w, scale, blocks, activation="fp8")
    with pytest.raises(checks.KernelInputError, match="must be one of fp8, fp4, bf16"):
        kernel.grouped_gemm(x, None, w, scale, blocks, activation="int8")


@pytest.mark.parametrize(("shape", "expert_bytes"), [(V4_FLASH, 13_369_344), (V4_PRO, 35_094_528)])
def test_counts_are_those_of_the_architecture(shape, expert_bytes):
    """One expert in MXFP4 with its scales, and 6·h·I FLOP per row."""
    one, two = kernel.work([1], shape, "fp8"), kernel.work([1, 1], shape, "fp8")
    rest = 2 * one.read_bytes - two.read_bytes
    assert rest == 0, "reads are linear in experts and rows"
    again = kernel.work([2], shape, "fp8")
    assert two.read_bytes - again.read_bytes == expert_bytes
    assert one.matrix_flops == 6 * shape.hidden * shape.expert_dim
