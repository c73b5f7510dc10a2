"""Rows normalised, turned and quantised in one pass, against fp64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from v4kernels import checks, norm_rope, numeric, quant
from v4kernels.reference import norm_rope as reference
from v4kernels.reference.compressor import rope_table

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def inputs(tokens, heads, width, seed):
    """Rows of very different sizes, positions out of order."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens * heads, width, generator=rng) * 2.0 ** torch.randint(
        -6, 7, (tokens * heads, 1), generator=rng
    )
    weight = 0.5 + torch.rand(width, generator=rng)
    positions = torch.randint(0, 64, (tokens,), generator=rng).to(torch.int32)
    return x.to(torch.bfloat16), weight, rope_table(64, 10000.0), positions


@settings(max_examples=12, deadline=None)
@given(
    tokens=st.integers(1, 3),
    heads=st.integers(1, 3),
    width=st.sampled_from([128, 512]),
    norm=st.sampled_from(norm_rope.NORMS),
    turn=st.sampled_from(norm_rope.TURNS),
    quantise=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_agrees(tokens, heads, width, norm, turn, quantise, seed):
    x, weight, rope, positions = inputs(tokens, heads, width, seed)
    named = {"norm": norm, "turn": turn}
    got, scale = norm_rope.norm_rope(
        x.to(DEVICE),
        weight=weight.to(DEVICE),
        rope=rope.to(DEVICE),
        positions=positions.to(DEVICE),
        quantise=quantise,
        **named,
    )
    want = reference.norm_rope(x.double(), weight=weight, rope=rope, positions=positions, **named)
    # fp32 on the way: a sum of `width` squares, a square root, and three products a value or pair.
    pair = want.abs() + want.abs().unflatten(1, (-1, 2)).flip(-1).flatten(1)
    bound = (width + 8) * numeric.U_FP32 * pair
    if quantise:
        values = quant.from_e4m3(got.view(torch.uint8).cpu(), scale.cpu())
        # One rounding to e4m3; a value that the fp32 error lifts over a tie takes the other neighbour. The
        # smallest step of a block is 2^-9 of a scale, which is at most 2^-7 of the largest value.
        top = want.abs().unflatten(1, (-1, 128)).amax(-1, keepdim=True).expand(-1, -1, 128).flatten(1)
        bound = bound + 2 * numeric.U_E4M3 * want.abs() + 2.0**-16 * top
    else:
        values = got.cpu()
        bound = bound + numeric.bf16_roundoff(DEVICE) * want.abs()
    assert numeric.deviation(values, want, bound).ok


def test_a_width_that_is_no_power_of_two():
    """V4-Pro's 7168 and 1536: the padding takes no part in the norm, and no scale is written for it."""
    x, weight, _, _ = inputs(2, 1, 384, 3)
    got, scale = norm_rope.norm_rope(x.to(DEVICE), weight=weight.to(DEVICE), norm="weighted", quantise=True)
    want = reference.norm_rope(x.double(), weight=weight, norm="weighted")
    assert scale.shape == (2, 3)
    values = quant.from_e4m3(got.view(torch.uint8).cpu(), scale.cpu())
    assert numeric.deviation(values, want, 2**-3 * want.abs() + 2.0**-16 * want.abs().max()).ok


def test_turning_back_undoes_turning():
    x, _, rope, positions = inputs(3, 2, 512, 5)
    named = {"rope": rope.to(DEVICE), "positions": positions.to(DEVICE)}
    there, _ = norm_rope.norm_rope(x.to(DEVICE), turn="forward", **named)
    back, _ = norm_rope.norm_rope(there, turn="back", **named)
    assert not torch.equal(there[:, -64:].cpu(), x[:, -64:])
    assert torch.equal(there[:, :-64].cpu(), x[:, :-64])
    u = numeric.bf16_roundoff(DEVICE)
    pair = x.double().abs() + x.double().abs().unflatten(1, (-1, 2)).flip(-1).flatten(1)
    assert numeric.deviation(back, x.double(), 4 * u * pair).ok


def test_refuses():
    x = torch.zeros(3, 384, dtype=torch.bfloat16)
    positions = torch.zeros(3, dtype=torch.int32)
    with pytest.raises(checks.KernelInputError, match="power of two"):
        norm_rope.norm_rope(x, turn="forward", rope=torch.zeros(1, 64), positions=positions)
    with pytest.raises(checks.KernelInputError, match="weight is None"):
        norm_rope.norm_rope(x, norm="weighted")
    with pytest.raises(checks.KernelInputError, match="rope and positions"):
        norm_rope.norm_rope(x, turn="back")


def test_counts():
    """A query head: 1 KiB in, 1 KiB out. An input of 4096: 8 KiB in, 4 KiB and 32 scales out."""
    head = norm_rope.work(1, 512, norm="unit", turn="forward", quantise=False)
    assert (head.read_bytes, head.write_bytes, head.fp32_ops) == (1024, 1024, 512 * 3 + 64 * 3)
    row = norm_rope.work(1, 4096, norm="weighted", turn="none", quantise=True)
    assert (row.read_bytes, row.write_bytes) == (8192, 4096 + 32)
