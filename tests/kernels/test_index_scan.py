"""Index scan: the kernel against fp64, for both key formats, ragged groups, page edges and candidate
lists.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from v4kernels import checks, layouts, numeric, quant
from v4kernels import index_scan as kernel
from v4kernels.reference import index_scan as reference

FORMATS = (layouts.INDEX_FP8, layouts.INDEX_FP4)


def make_case(rng, fmt, heads, groups, visible, page_entries):
    """Random queries, keys on scattered pages, and a page table per request; groups[i] tokens of request
    i.
    """
    tokens = sum(groups)
    values = torch.randn(tokens, heads, 128, generator=rng)
    if fmt is layouts.INDEX_FP4:
        packed, scale = quant.to_mxfp4(values)
        q, q_scale = packed, scale
        weights = torch.randn(tokens, heads, generator=rng)
    else:
        q, scale = quant.to_e4m3(values, 128)
        q_scale = None
        weights = torch.randn(tokens, heads, generator=rng) * quant.ue8m0_value(scale)[..., 0]
    pages = max(1, -(-max(visible) // page_entries))
    order = torch.randperm(len(groups) * pages, generator=rng).to(torch.int32)
    table = order.view(len(groups), pages).contiguous()
    cache = layouts.new_cache(fmt, len(groups) * pages, page_entries)
    slots = torch.arange(len(groups) * pages * page_entries)
    scale = 0.25 + 4 * torch.rand(len(slots), 1, generator=rng)
    layouts.write(fmt, cache, page_entries, slots, torch.randn(len(slots), 128, generator=rng) * scale)
    start = torch.tensor([0, *torch.tensor(groups).cumsum(0).tolist()], dtype=torch.int32)
    request = torch.repeat_interleave(torch.arange(len(groups)), torch.tensor(groups))
    return q, q_scale, weights, cache, table, start, request, torch.tensor(visible, dtype=torch.int32)


def bound_factor(fmt, heads, device):
    """128 products exact in fp32, summed; then `heads` FMAs, one scale, one store: (128 + heads + 2)
    roundings.

    On sm_90 the FP8 tensor core adds with about 13 bits, and that round-off applies to the 128 products.
    """
    hopper = device.type == "cuda" and checks.capability(device) < 100 and fmt is layouts.INDEX_FP8
    dot = numeric.U_FP8_HOPPER if hopper else numeric.U_FP32
    return numeric.accumulation_factor(128, dot) + numeric.accumulation_factor(heads + 2, numeric.U_FP32)


def check(device, fmt, heads, groups, visible, page_entries, rng, num_splits=None):
    q, q_scale, weights, cache, table, start, request, seen = make_case(
        rng, fmt, heads, groups, visible, page_entries
    )
    columns = max(visible)
    want, magnitude = reference.index_scan(
        q, q_scale, weights, cache, table, request, seen, fmt=fmt, page_entries=page_entries, columns=columns
    )
    move = [None if t is None else t.to(device) for t in (q, q_scale, weights, cache, table)]
    got = kernel.index_scan(
        *move,
        torch.arange(len(groups), dtype=torch.int32, device=device),
        start.to(device),
        seen.to(device),
        fmt=fmt,
        page_entries=page_entries,
        max_visible=columns,
        tokens_per_group=max(groups),
        num_splits=num_splits,
        out=torch.full((sum(groups), columns), -torch.inf, device=device),
    )
    result = numeric.deviation(got, want, magnitude * bound_factor(fmt, heads, device))
    assert result.ok, result
    assert torch.isfinite(got).any(), "nothing was computed"


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("heads", [32, 64])
@pytest.mark.parametrize("verify", [1, 3, 8])
def test_decode_matches_fp64(device, rng, fmt, heads, verify):
    """Verify tokens of one request share keys but not what they see."""
    visible = [max(0, 200 - verify + i + 1) for i in range(verify)]
    check(device, fmt, heads, [verify], visible, 64, rng)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_ragged_requests_of_unequal_length(device, rng, fmt):
    """Groups of 1-3 tokens; lengths at 0, 1, one page, one tile and one past each."""
    check(device, fmt, 64, [1, 3, 2, 1, 1], [0, 1, 63, 64, 65, 127, 128, 129], 64, rng)


@pytest.mark.parametrize("num_splits", [1, 2, 3])
def test_number_of_spans_does_not_change_a_bit(device, rng, num_splits):
    """Spans only divide columns: every logit is computed by the same instructions."""
    state = rng.get_state()
    results = []
    for splits in (1, num_splits):
        rng.set_state(state)
        q, q_scale, w, cache, table, start, _, seen = make_case(
            rng, layouts.INDEX_FP8, 64, [2], [290, 291], 64
        )
        results.append(
            kernel.index_scan(
                *(t if t is None else t.to(device) for t in (q, q_scale, w, cache, table)),
                torch.zeros(1, dtype=torch.int32, device=device),
                start.to(device),
                seen.to(device),
                fmt=layouts.INDEX_FP8,
                page_entries=64,
                max_visible=291,
                tokens_per_group=2,
                num_splits=splits,
                out=torch.zeros(2, 291, device=device),
            )
        )
    assert torch.equal(results[0], results[1])


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_candidate_lists(device, rng, fmt):
    """Each token scores only its own blocks; missing blocks and unseen entries come out as -inf."""
    q, q_scale, w, cache, table, start, request, seen = make_case(rng, fmt, 32, [1, 1], [150, 77], 64)
    blocks = torch.stack([torch.randperm(19, generator=rng)[:18] for _ in range(2)]).to(torch.int32)
    blocks[0, 5] = -1
    want, magnitude = reference.index_scan(
        q, q_scale, w, cache, table, request, seen, fmt=fmt, page_entries=64, columns=144, candidates=blocks
    )
    got = kernel.index_scan(
        *(t if t is None else t.to(device) for t in (q, q_scale, w, cache, table)),
        torch.arange(2, dtype=torch.int32, device=device),
        start.to(device),
        seen.to(device),
        fmt=fmt,
        page_entries=64,
        max_visible=150,
        tokens_per_group=1,
        candidates=blocks.to(device),
    )
    assert torch.isinf(want).any()
    assert torch.equal(torch.isinf(got.cpu()), torch.isinf(want))
    result = numeric.deviation(got, want, magnitude * bound_factor(fmt, 32, device))
    assert result.ok, result


@settings(max_examples=10, deadline=None)
@given(
    fmt=st.sampled_from(FORMATS),
    heads=st.sampled_from([32, 64]),
    groups=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    page_entries=st.sampled_from([32, 64]),
    data=st.data(),
)
def test_any_small_shape(fmt, heads, groups, page_entries, data):
    """Shapes drawn at random, one split or two."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    visible = data.draw(st.lists(st.integers(1, 140), min_size=sum(groups), max_size=sum(groups)))
    seed = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    check(
        device, fmt, heads, groups, visible, page_entries, seed, num_splits=data.draw(st.sampled_from([1, 2]))
    )


def test_launcher_refuses_what_the_kernel_was_not_built_for(device):
    """Wrong dtype, a strided tensor, a missing scale."""
    ints = torch.zeros(2, dtype=torch.int32, device=device)
    q = torch.zeros(1, 64, 64, dtype=torch.uint8, device=device)
    cache = torch.zeros(1, 4352, dtype=torch.uint8, device=device)
    table, weights = ints[:1].view(1, 1), torch.zeros(1, 64, device=device)
    options = {"fmt": layouts.INDEX_FP4, "page_entries": 64, "max_visible": 1, "tokens_per_group": 1}
    strided = torch.zeros(1, 64, 64, dtype=torch.uint8, device=device).transpose(1, 2)
    with pytest.raises(checks.KernelInputError, match="q_scale is None"):
        kernel.index_scan(q, None, weights, cache, table, ints[:1], ints, ints[:1], **options)
    with pytest.raises(checks.KernelInputError, match=r"weights is torch\.float64"):
        kernel.index_scan(q, q, weights.double(), cache, table, ints[:1], ints, ints[:1], **options)
    with pytest.raises(checks.KernelInputError, match="must be contiguous"):
        kernel.index_scan(strided, None, weights, cache, table, ints[:1], ints, ints[:1], **options)


def test_counts_are_those_of_the_architecture():
    """One V4-Flash token over 2^20 native tokens: 4,294,967,296 FLOP, 17 MiB of FP4 keys, 2 ops per
    head.
    """
    fp4 = kernel.work(1, [2**18], 64, layouts.INDEX_FP4)
    assert fp4.matrix_flops == 4_294_967_296
    assert fp4.read_bytes - 64 * 68 == 17_825_792
    assert fp4.fp32_ops == 2**18 * 128
    fp8 = kernel.work(4, [2**18], 64, layouts.INDEX_FP8)
    assert fp8.read_bytes - 4 * 64 * 132 == 2**18 * 132, "four verify tokens share one read of the keys"
