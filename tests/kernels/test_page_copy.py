"""Copies move exactly the bytes they are asked to, and nothing else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from v4kernels import checks, gather, layouts, page_copy


def random_cache(rng, fmt, pages, page_entries, device):
    """Random bytes; a device cache, or pinned host memory beside a device."""
    data = torch.randint(0, 256, (pages, fmt.page_bytes(page_entries)), dtype=torch.uint8, generator=rng)
    return layouts.PagedCache(data.to(device), fmt, page_entries)


def entry_bytes(cache, slot):
    fmt = cache.fmt
    page, row = divmod(slot, cache.page_entries)
    data = cache.data[page].cpu()
    scales = cache.page_entries * fmt.data_bytes + row * fmt.scale_bytes
    return data[row * fmt.data_bytes :][: fmt.data_bytes], data[scales:][: fmt.scale_bytes]


@settings(max_examples=12, deadline=None)
@given(
    fmt=st.sampled_from(sorted(layouts.FORMATS)),
    entries=st.sampled_from([(2, 64), (64, 16), (64, 64)]),
    count=st.integers(0, 20),
    seed=st.integers(0, 1000),
)
def test_entries_arrive_and_the_rest_stays(fmt, entries, count, seed):
    """Scattered entries between pages of different sizes; -1 on either side is skipped."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rng = torch.Generator().manual_seed(seed)
    fmt = layouts.entry_format(fmt)
    source = random_cache(rng, fmt, 64 // entries[0] + 1, entries[0], "cpu")
    if device.type == "cuda":
        source = layouts.PagedCache(source.data.pin_memory(), fmt, entries[0])
    target = random_cache(rng, fmt, 64 // entries[1] + 1, entries[1], device)
    before = target.data.cpu().clone()
    source_slots = torch.randint(-1, 64, (count,), generator=rng).to(torch.int32)
    target_slots = (torch.randperm(64, generator=rng)[:count] - 1).to(torch.int32)
    page_copy.copy_entries(source, source_slots.to(device), target, target_slots.to(device))
    want = layouts.PagedCache(before, fmt, entries[1])
    for s, t in zip(source_slots.tolist(), target_slots.tolist(), strict=True):
        if s >= 0 and t >= 0:
            for there, new in zip(entry_bytes(want, t), entry_bytes(source, s), strict=True):
                there.copy_(new)
    assert torch.equal(target.data.cpu(), want.data)


def test_pages(device, rng):
    """Pages of 37,440 bytes, out of order, there and back: a write-back restores the source."""
    host = random_cache(rng, layouts.FP8_584, 5, 64, "cpu").data
    if device.type == "cuda":
        host = host.pin_memory()
    cache = torch.zeros_like(host, device=device)
    pages, places = (torch.tensor(p, dtype=torch.int32, device=device) for p in ([4, 0, 2], [1, 3, 0]))
    page_copy.copy_pages(host, pages, cache, places)
    assert torch.equal(cache.cpu()[[1, 3, 0]], host[[4, 0, 2]])
    assert not cache[[2, 4]].any()
    back = page_copy.pinned(tuple(host.shape), cache)
    back.zero_()
    page_copy.copy_pages(cache, places, back, pages)
    if device.type == "cuda":
        torch.cuda.synchronize()
    assert torch.equal(back[[4, 0, 2]], host[[4, 0, 2]])


def test_layerwise_load_delivers_each_layer(device, rng):
    """After waiting for a layer its pages are there."""
    layers = [random_cache(rng, layouts.INDEX_FP8, 3, 64, "cpu").data for _ in range(3)]
    if device.type == "cuda":
        layers = [layer.pin_memory() for layer in layers]
    targets = [torch.zeros_like(layer, device=device) for layer in layers]
    load = page_copy.LayerwiseLoad(layers, targets)
    load.start()
    for layer, (source, target) in enumerate(zip(layers, targets, strict=True)):
        load.wait(layer)
        assert torch.equal(target.clone().cpu(), source)


def test_gather_decodes_what_layouts_decode(device, rng):
    """All three latent formats, missing entries as zeros; decoding is exact."""
    for fmt in (layouts.FP8_584, layouts.FP8_528, layouts.FP4_288):
        cache = layouts.PagedCache(layouts.new_cache(fmt, 3, 16), fmt, 16)
        cache.write(torch.arange(48), torch.randn(48, 512, generator=rng) * 3)
        slots = torch.tensor([5, -1, 47, 0, 31] * 4, dtype=torch.int32)
        want = cache.read(slots.clamp(min=0)) * (slots >= 0)[:, None]
        got = gather.gather(layouts.PagedCache(cache.data.to(device), fmt, 16), slots.to(device))
        # Stored values carry at most 4 significand bits, or are bf16; e2m1 times e4m3 has 2 + 4 bits: all
        # fit bf16.
        assert torch.equal(got.cpu().float(), want)


def test_translate_follows_page_table_and_candidates(device, rng):
    """Logical entries of two requests, and columns of a candidate pool."""
    table = torch.tensor([[7, 3, 9], [1, 8, 2]], dtype=torch.int32)
    request = torch.tensor([1, 0], dtype=torch.int32)
    index = torch.tensor([[0, 17, -1, 47], [16, 15, 33, -1]], dtype=torch.int32)
    got = gather.translate(index.to(device), table.to(device), request.to(device), 16).cpu()
    assert got.tolist() == [[16, 129, -1, 47], [48, 127, 145, -1]]
    candidates = torch.tensor([[5, -1], [0, 2]], dtype=torch.int32)
    columns = torch.tensor([[0, 7, 8, -1], [15, 8, 0, 1]], dtype=torch.int32)
    got = gather.translate(
        columns.to(device), table.to(device), request.to(device), 16, candidates=candidates.to(device)
    ).cpu()
    entries = [[40, 47, None, None], [23, 16, 0, 1]]
    want = [
        [-1 if e is None else int(table[r][e // 16]) * 16 + e % 16 for e in row]
        for r, row in zip(request.tolist(), entries, strict=True)
    ]
    assert got.tolist() == want


def test_refuses(device, rng):
    """Two formats; shapes that differ."""
    a = random_cache(rng, layouts.FP8_584, 1, 64, device)
    b = random_cache(rng, layouts.FP8_528, 1, 64, device)
    slots = torch.zeros(1, dtype=torch.int32, device=device)
    with pytest.raises(checks.KernelInputError, match="formats must agree"):
        page_copy.copy_entries(a, slots, b, slots)
    with pytest.raises(checks.KernelInputError, match="must be equal"):
        page_copy.bulk_copy(a.data, b.data)


def test_counts():
    """A miss of 512 entries is 299,008 bytes over the link; pages move with their padding."""
    assert page_copy.entries_work(512, layouts.FP8_584).link_bytes == 299_008
    assert page_copy.pages_work(2, layouts.FP8_584.page_bytes(64)).link_bytes == 2 * 37_440
    assert gather.work(10, layouts.FP4_288).read_bytes == 10 * 292
