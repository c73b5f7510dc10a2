"""Sparse, HCA and window attention: both kernel forms against fp64, with sinks, ragged lists and page
edges."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from v4kernels import checks, layouts, numeric
from v4kernels.hca_attention import hca_attention
from v4kernels.hca_attention import work as hca_work
from v4kernels.reference.attention import attention as reference
from v4kernels.sparse_attention import sparse_attention
from v4kernels.sparse_attention import work as sparse_work
from v4kernels.swa_attention import swa_attention


def make_cache(rng, fmt, pages, page_entries, device):
    """A cache whose every byte is defined, so that a kernel reading a wrong slot is wrong and not
    undefined."""
    data = layouts.new_cache(fmt, pages, page_entries)
    data.fill_(0x7F)  # NaN in e4m3: padding and unwritten entries must never be read
    cache = layouts.PagedCache(data, fmt, page_entries)
    slots = torch.arange(
        1, pages * page_entries
    )  # slot 0 stays NaN: masked lanes may address it, never use it
    cache.write(
        slots, torch.randn(len(slots), 512, generator=rng) * (0.5 + torch.rand(len(slots), 1, generator=rng))
    )
    return cache, layouts.PagedCache(data.to(device), fmt, page_entries)


def draw_slots(rng, tokens, columns, counts, limit):
    """int32 [tokens, columns]: counts[t] distinct slots >= 1, then -1."""
    slots = torch.full((tokens, columns), -1, dtype=torch.int32)
    for t, count in enumerate(counts):
        slots[t, :count] = (torch.randperm(limit - 1, generator=rng)[:count] + 1).to(torch.int32)
    return slots


def latents(cache, slots):
    return [cache.read(row[row >= 0]) for row in slots]


def compare(got, q, sinks, entries):
    want, bound = reference(q, sinks, entries, numeric.bf16_roundoff(got.device))
    result = numeric.deviation(got, want, bound)
    assert result.ok, result
    assert numeric.similarity_gap(got, want) < 1e-4


FORMS = ("whole", "halves")


def check_sparse(device, rng, form, heads, formats, counts, window_counts, columns, num_splits=None):
    tokens = len(counts)
    window, window_dev = make_cache(rng, formats[0], 3, 64, device)
    selected, selected_dev = make_cache(rng, formats[1], 8, 16, device)
    q = torch.randn(tokens, heads, 512, generator=rng).to(torch.bfloat16)
    sinks = torch.randn(heads, generator=rng) * 3
    window_slots = draw_slots(rng, tokens, 64, window_counts, 3 * 64)
    selected_slots = draw_slots(rng, tokens, columns, counts, 8 * 16)
    got = sparse_attention(
        q.to(device),
        sinks.to(device),
        window_dev,
        window_slots.to(device),
        selected_dev,
        selected_slots.to(device),
        form=form,
        num_splits=num_splits,
    )
    entries = [
        torch.cat(pair)
        for pair in zip(latents(window, window_slots), latents(selected, selected_slots), strict=True)
    ]
    compare(got, q, sinks, entries)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_splits", [1, 2])
def test_sparse_ragged_lists(device, rng, form, num_splits):
    """Empty selection, a single entry, a partial block, a full list; windows from 1 to 64."""
    check_sparse(
        device,
        rng,
        form,
        64,
        (layouts.FP8_584,) * 2,
        [0, 1, 33, 96],
        [1, 64, 17, 40],
        96,
        num_splits=num_splits,
    )


@pytest.mark.parametrize("form", FORMS)
def test_sparse_with_the_heads_of_pro(device, rng, form):
    """128 heads are two programs that read the same entries."""
    check_sparse(device, rng, form, 128, (layouts.FP8_584,) * 2, [40], [33], 40)


def test_entries_of_v41(device, rng):
    """288-byte FP4 entries beside a 528-byte window."""
    if device.type == "cuda" and checks.capability(device) < 100:
        pytest.skip("the whole form needs tensor memory: sm_100 and later")
    check_sparse(
        device, rng, "whole", 64, (layouts.FP8_528, layouts.FP4_288), [5, 40], [33, 9], 40, num_splits=2
    )


def test_mixed_formats_are_refused_by_the_halves_form(device, rng):
    """One loop cannot read two formats."""
    with pytest.raises(checks.KernelInputError, match="need the `whole` form"):
        check_sparse(device, rng, "halves", 64, (layouts.FP8_528, layouts.FP4_288), [5], [9], 40)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_to_attend_to_gives_zero(device, rng, form):
    """Only the sink is left: it takes all the weight and adds nothing."""
    _, window_dev = make_cache(rng, layouts.FP8_584, 1, 64, device)
    q = torch.randn(1, 64, 512, generator=rng).to(torch.bfloat16)
    slots = torch.full((1, 64), -1, dtype=torch.int32)
    for splits in (1, 2):
        got = swa_attention(
            q.to(device),
            torch.zeros(64, device=device),
            window_dev,
            slots.to(device),
            form=form,
            num_splits=splits,
        )
        assert torch.equal(got.cpu(), torch.zeros_like(q))


@pytest.mark.parametrize("form", FORMS)
def test_window_alone(device, rng, form):
    """The rolling window of 128, one token before it is full and after."""
    window, window_dev = make_cache(rng, layouts.FP8_584, 1, 256, device)
    q = torch.randn(2, 64, 512, generator=rng).to(torch.bfloat16)
    sinks = torch.randn(64, generator=rng)
    slots = draw_slots(rng, 2, 128, [100, 128], 256)
    got = swa_attention(q.to(device), sinks.to(device), window_dev, slots.to(device), form=form)
    compare(got, q, sinks, latents(window, slots))


def check_hca(device, rng, form, visible, requests, num_splits):
    tokens = len(visible)
    pages = max(1, -(-max(visible) // 2))
    window, window_dev = make_cache(rng, layouts.FP8_584, 1, 64, device)
    # Page 0 belongs to nobody: its first slot is the NaN one.
    cache, cache_dev = make_cache(rng, layouts.FP8_584, 1 + pages * (max(requests) + 1), 2, device)
    order = torch.randperm(pages * (max(requests) + 1), generator=rng) + 1
    table = order.view(-1, pages).to(torch.int32).contiguous()
    q = torch.randn(tokens, 64, 512, generator=rng).to(torch.bfloat16)
    sinks = torch.randn(64, generator=rng)
    slots = draw_slots(rng, tokens, 64, [40] * tokens, 64)
    got = hca_attention(
        q.to(device),
        sinks.to(device),
        window_dev,
        slots.to(device),
        cache_dev,
        table.to(device),
        torch.tensor(requests, dtype=torch.int32, device=device),
        torch.tensor(visible, dtype=torch.int32, device=device),
        max_visible=max(visible),
        num_splits=num_splits,
        form=form,
    )
    entries = []
    for t, (seen, request) in enumerate(zip(visible, requests, strict=True)):
        dense = cache.read(layouts.slots_of(table[request], 2, torch.arange(seen)))
        entries.append(torch.cat([latents(window, slots[t : t + 1])[0], dense]))
    compare(got, q, sinks, entries)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_splits", [1, 3])
def test_hca_reads_all_visible_entries(device, rng, form, num_splits):
    """Two requests, lengths at 0, odd (half a page), one block and one more."""
    check_hca(device, rng, form, [0, 7, 32, 33], [0, 1, 0, 1], num_splits)


@settings(max_examples=4, deadline=None)
@given(
    form=st.sampled_from(FORMS),
    counts=st.lists(st.integers(0, 64), min_size=1, max_size=2),
    num_splits=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_any_small_shape(form, counts, num_splits, seed):
    """Random list lengths and any number of ranges, also more ranges than blocks."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rng = torch.Generator().manual_seed(seed)
    windows = [1 + (c * 7) % 64 for c in counts]
    check_sparse(device, rng, form, 64, (layouts.FP8_584,) * 2, counts, windows, 64, num_splits=num_splits)


def test_launcher_refuses(device, rng):
    """32 heads, int64 slots, too many ranges, a cache whose rows are not pages."""
    _, cache = make_cache(rng, layouts.FP8_584, 1, 64, device)
    q = torch.zeros(1, 64, 512, dtype=torch.bfloat16, device=device)
    sinks = torch.zeros(64, device=device)
    slots = torch.zeros(1, 64, dtype=torch.int32, device=device)
    with pytest.raises(checks.KernelInputError, match="heads % 64 is 32"):
        swa_attention(q[:, :32].contiguous(), sinks[:32], cache, slots)
    with pytest.raises(checks.KernelInputError, match=r"window_slots is torch\.int64"):
        swa_attention(q, sinks, cache, slots.long())
    with pytest.raises(checks.KernelInputError, match="num_splits is 65"):
        swa_attention(q, sinks, cache, slots, num_splits=65)
    with pytest.raises(checks.KernelInputError, match=r"window \(fp8_584\) has shape"):
        swa_attention(q, sinks, layouts.PagedCache(cache.data, layouts.FP8_584, 32), slots)


def test_counts_are_those_of_the_architecture():
    """83,886,080 FLOP per Flash token and 301,989,888 per Pro token; HCA at a million 1,090,519,040."""
    assert sparse_work(1, 64, 512).matrix_flops == 83_886_080
    assert sparse_work(1, 128, 1024).matrix_flops == 301_989_888
    assert hca_work([8192], 1, 64).matrix_flops == 1_090_519_040
    assert sparse_work(3, 64, 512).read_bytes == 3 * (640 * 584 + 64 * 512 * 2)
