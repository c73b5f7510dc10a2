"""mHC: weights, collapse and expansion against fp64; comb is doubly stochastic."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from v4kernels import checks, mhc, numeric
from v4kernels.reference import mhc as reference


def draw(rng, tokens, hidden):
    x = torch.randn(tokens, 4, hidden, generator=rng).to(torch.bfloat16)
    fn = torch.randn(24, 4 * hidden, generator=rng) / (4 * hidden) ** 0.5
    return x, fn, torch.randn(24, generator=rng), torch.rand(3, generator=rng) + 0.5


def check(device, rng, tokens, hidden, num_splits):
    x, fn, base, scale = draw(rng, tokens, hidden)
    moved = [t.to(device) for t in (x, fn, base, scale)]
    out, post, comb = mhc.collapse(*moved, num_splits=num_splits)
    want, want_post, want_comb = reference.collapse(x.double(), fn, base, scale, 1e-6, 1e-6, 20)
    # A mix is a dot of 4·hidden terms of unit variance: its error 4·hidden·u·Σ|x·w| / rms is below 4e-4
    # here; sigmoid halves it at most, softmax and Sinkhorn of a 4x4 amplify by less than 4.
    slack = (
        4 * numeric.U_FP32 * 4 * hidden * float((x.double().abs().flatten(1) @ fn.double().abs().T).amax())
    )
    assert numeric.deviation(post, want_post, slack).ok
    assert numeric.deviation(comb, want_comb, 4 * slack).ok
    magnitude = x.double().abs().sum(1)
    u = numeric.bf16_roundoff(device)
    assert numeric.deviation(out, want, u * want.abs() + (slack + 1e-6) * magnitude).ok
    y = torch.randn(tokens, hidden, generator=rng).to(torch.bfloat16)
    streams = mhc.expand(moved[0], y.to(device), post, comb)
    want = reference.expand(x.double(), y.double(), post.double().cpu(), comb.double().cpu())
    bound = u * want.abs() + 8 * numeric.U_FP32 * (2 * y.double().abs() + magnitude)[:, None, :]
    result = numeric.deviation(streams, want, bound)
    assert result.ok, result
    return comb.cpu()


@pytest.mark.parametrize(("tokens", "num_splits"), [(1, 1), (1, 4), (17, 2)])
def test_matches_fp64(device, rng, tokens, num_splits):
    """One decode token with the long axis in one and in four parts; more tokens than a tile."""
    comb = check(device, rng, tokens, 256, num_splits)
    assert torch.allclose(comb.sum(-2), torch.ones(tokens, 4), atol=1e-4)
    assert torch.allclose(comb.sum(-1), torch.ones(tokens, 4), atol=1e-3)


@settings(max_examples=8, deadline=None)
@given(
    tokens=st.integers(1, 20),
    hidden=st.sampled_from([64, 128, 320]),
    splits=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_any_small_shape(tokens, hidden, splits, seed):
    """Token counts off the tile, spans off the split."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check(device, torch.Generator().manual_seed(seed), tokens, hidden, splits)


def test_expand_reads_comb_by_its_first_axis(device):
    """The direction matters: comb is not symmetric. One stream in, its row of comb out."""
    x = torch.zeros(1, 4, 64, dtype=torch.bfloat16)
    x[0, 1] = 1.0
    comb = torch.arange(16.0).view(1, 4, 4)
    y = torch.zeros(1, 64, dtype=torch.bfloat16)
    got = mhc.expand(x.to(device), y.to(device), torch.zeros(1, 4, device=device), comb.to(device))
    assert got[0, :, 0].tolist() == [4.0, 5.0, 6.0, 7.0]


def test_launcher_refuses(device, rng):
    """fp32 streams; a width that no block divides."""
    x, fn, base, scale = (t.to(device) for t in draw(rng, 1, 64))
    with pytest.raises(checks.KernelInputError, match=r"x is torch\.float32"):
        mhc.collapse(x.float(), fn, base, scale)
    with pytest.raises(checks.KernelInputError, match="multiple of 64"):
        mhc.hidden_block(100)


def test_counts():
    """24 rows of 4·4096 per token, two FLOP each."""
    assert mhc.work(3, 4096).matrix_flops == 2 * 3 * 16384 * 24
