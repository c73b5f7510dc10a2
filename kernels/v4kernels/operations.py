"""What a measurer needs of each kernel: inputs of a real shape, one launch, its counts, and a check against
the reference.

`prepare_<operation>` draws random inputs on the device (random valid bytes in the caches, scattered pages,
ragged nothing: every request has the same context) and returns `Prepared`. `run()` launches once on the
current stream and allocates its outputs; `verify()` compares a few tokens of the result with the fp64
reference and returns the `Deviation`, so a wrong kernel is never timed. `layers` makes that many distinct
caches and `run` walks through them, which is how a caller keeps L2 cold. Inputs are never zero, logits
never tied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from v4kernels import (
    checks,
    index_scan,
    layouts,
    numeric,
    quant,
    topk,
)
from v4kernels.hca_attention import hca_attention
from v4kernels.hca_attention import work as hca_work
from v4kernels.reference import attention as attention_reference
from v4kernels.reference import index_scan as index_reference
from v4kernels.reference import topk as topk_reference
from v4kernels.shapes import HEAD_DIM, INDEX_DIM, WINDOW, ModelShape
from v4kernels.sparse_attention import sparse_attention
from v4kernels.sparse_attention import work as sparse_work
from v4kernels.work import Work


@dataclass(frozen=True, slots=True)
class Prepared:
    """One measurable operation at one shape."""

    run: Callable[[], Any]
    work: Work
    verify: Callable[[], numeric.Deviation]


def random_cache(
    fmt: layouts.EntryFormat, pages: int, page_entries: int, device: torch.device, generator: torch.Generator
) -> layouts.PagedCache:
    """A cache of random finite entries of magnitude about one, made without encoding: a million
    entries in milliseconds.
    """
    data = torch.randint(
        0, 256, (pages, fmt.page_bytes(page_entries)), dtype=torch.uint8, device=device, generator=generator
    )
    data &= 0xBF  # clears an exponent bit: no e4m3 NaN, |x| < 2
    split = page_entries * fmt.data_bytes
    scales = data[:, split : split + page_entries * fmt.scale_bytes]
    if fmt is layouts.INDEX_FP8:
        one = torch.ones(1, device=device).view(torch.uint8)
        scales.copy_(one.repeat(page_entries).expand_as(scales))
    else:
        scales.fill_(0x38 if fmt is layouts.FP4_288 else 127)  # e4m3 one, ue8m0 one
    if fmt is layouts.FP8_584:
        rope = data[:, :split].view(pages, page_entries, fmt.data_bytes)[:, :, 448:]
        values = torch.randn(pages, page_entries, 64, device=device, generator=generator).to(torch.bfloat16)
        rope.copy_(values.view(torch.uint8))
    return layouts.PagedCache(data, fmt, page_entries)


def random_table(requests: int, pages: int, device: torch.device, generator: torch.Generator) -> Tensor:
    """int32 [requests, pages]: every page of the pool once, scattered."""
    order = torch.randperm(requests * pages, device=device, generator=generator)
    return order.to(torch.int32).view(requests, pages)


def seeded(device: torch.device, seed: int) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def sample_rows(tokens: int, limit: int = 3) -> list[int]:
    return sorted({0, tokens // 2, tokens - 1})[:limit]


def prepare_index_scan(
    shape: ModelShape,
    fmt: layouts.EntryFormat,
    requests: int,
    context: int,
    width: int,
    device: torch.device,
    *,
    layers: int = 1,
    ratio: int = 4,
    seed: int = 0,
) -> Prepared:
    """`requests` sequences of `context` native tokens; `width` query tokens each: a verify step,
    or a prefill chunk.
    """
    g = seeded(device, seed)
    tokens, entries, heads = requests * width, context // ratio, shape.index_heads
    values = torch.randn(tokens, heads, INDEX_DIM, device=device, generator=g)
    weights = torch.randn(tokens, heads, device=device, generator=g)
    if fmt is layouts.INDEX_FP4:
        q, scale = quant.to_mxfp4(values)
    else:
        q, byte = quant.to_e4m3(values, INDEX_DIM)
        scale, weights = None, weights * quant.ue8m0_value(byte)[..., 0]
    pages = -(-entries // 64)
    table = random_table(requests, pages, device, g)
    caches = [random_cache(fmt, requests * pages, 64, device, g) for _ in range(layers)]
    visible = (context - width + 1 + torch.arange(width, device=device).repeat(requests)) // ratio
    visible = visible.to(torch.int32)
    per_group = min(width, 8)
    starts = [r * width + i for r in range(requests) for i in range(0, width, per_group)] + [tokens]
    start = torch.tensor(starts, dtype=torch.int32, device=device)
    request = torch.tensor([s // width for s in starts[:-1]], dtype=torch.int32, device=device)
    out = torch.empty(tokens, entries, device=device)

    def launch(cache: layouts.PagedCache) -> Tensor:
        return index_scan.index_scan(
            q,
            scale,
            weights,
            cache.data,
            table,
            request,
            start,
            visible,
            fmt=fmt,
            page_entries=64,
            max_visible=entries,
            tokens_per_group=per_group,
            out=out,
        )

    def verify() -> numeric.Deviation:
        got = launch(caches[0])
        rows = sample_rows(tokens)
        want, magnitude = index_reference.index_scan(
            q[rows].cpu(),
            None if scale is None else scale[rows].cpu(),
            weights[rows].cpu(),
            caches[0].data.cpu(),
            table.cpu(),
            torch.tensor(rows) // width,
            visible[rows].cpu(),
            fmt=fmt,
            page_entries=64,
            columns=entries,
        )
        hopper = device.type == "cuda" and checks.capability(device) < 100
        u = numeric.U_FP8_HOPPER if hopper else numeric.U_FP32
        bound = magnitude * (INDEX_DIM * u + (heads + 2) * numeric.U_FP32)
        seen = torch.isfinite(want)
        return numeric.deviation(got[rows].cpu()[seen], want[seen], bound[seen])

    turn = cycle(caches)
    return Prepared(
        lambda: launch(next(turn)), index_scan.work(width, [entries] * requests, heads, fmt), verify
    )


def prepare_topk(
    rows: int, columns: int, k: int, device: torch.device, *, layers: int = 1, seed: int = 0
) -> Prepared:
    """Normal logits, as distinct as fp32 makes them."""
    g = seeded(device, seed)
    logits = [torch.randn(rows, columns, device=device, generator=g) for _ in range(layers)]
    lengths = torch.full((rows,), columns, dtype=torch.int32, device=device)

    def verify() -> numeric.Deviation:
        got = topk.topk(logits[0], lengths, k).cpu()
        chosen = sample_rows(rows)
        want = topk_reference.topk(logits[0][chosen].cpu(), lengths[chosen].cpu(), k)
        sets = torch.tensor([sorted(c for c in got[r].tolist() if c >= 0) for r in chosen])
        return numeric.deviation(sets, torch.tensor(want), 0.0)

    turn = cycle(logits)
    return Prepared(lambda: topk.topk(next(turn), lengths, k), topk.work([columns] * rows, k), verify)


def prepare_attention(
    shape: ModelShape,
    kind: str,
    requests: int,
    context: int,
    width: int,
    device: torch.device,
    *,
    layers: int = 1,
    seed: int = 0,
) -> Prepared:
    """`kind` "sparse" (index_topk of context / 4 entries) or "hca" (all context / 128); windows are full."""
    checks.choose(kind, "kind", ("sparse", "hca"))
    g = seeded(device, seed)
    tokens = requests * width
    fmt = layouts.entry_format(shape.main_format)
    window_fmt = layouts.entry_format(shape.window_format)
    q = torch.randn(tokens, shape.heads, HEAD_DIM, device=device, generator=g).to(torch.bfloat16)
    sinks = torch.randn(shape.heads, device=device, generator=g)
    windows = [random_cache(window_fmt, requests, 256, device, g) for _ in range(layers)]
    token_request = torch.arange(tokens, device=device) // width
    steps = torch.arange(WINDOW, device=device)
    offset = torch.arange(tokens, device=device) % width
    window_slots = (token_request[:, None] * 256 + (offset[:, None] + steps) % 256).to(torch.int32)
    ratio, page_entries = (
        (min(shape.csa_ratios, default=4), 64) if kind == "sparse" else (shape.hca_ratio or 128, 2)
    )
    entries = max(1, context // ratio)
    pages = -(-entries // page_entries)
    caches = [random_cache(fmt, requests * pages, page_entries, device, g) for _ in range(layers)]
    count = min(shape.index_topk, entries)
    if kind == "sparse":
        # A run of one random order: distinct, scattered, and small at any number of tokens.
        order = torch.randperm(entries, device=device, generator=g)
        begin = torch.randint(0, entries, (tokens, 1), device=device, generator=g)
        order = order[(begin + torch.arange(count, device=device)) % entries]
        slots = (order + token_request[:, None] * pages * page_entries).to(torch.int32).contiguous()
        work = sparse_work(tokens, shape.heads, count, window_format=window_fmt, selected_format=fmt)

        def launch(window: layouts.PagedCache, cache: layouts.PagedCache) -> Tensor:
            return sparse_attention(q, sinks, window, window_slots, cache, slots)

        def seen(token: int) -> Tensor:
            return slots[token]
    else:
        table = random_table(requests, pages, device, g)
        visible = torch.full((tokens,), entries, dtype=torch.int32, device=device)
        request = token_request.to(torch.int32)
        work = hca_work([entries] * requests, width, shape.heads)

        def launch(window: layouts.PagedCache, cache: layouts.PagedCache) -> Tensor:
            return hca_attention(
                q, sinks, window, window_slots, cache, table, request, visible, max_visible=entries
            )

        def seen(token: int) -> Tensor:
            return layouts.slots_of(table[token // width], page_entries, torch.arange(entries, device=device))

    def verify() -> numeric.Deviation:
        got = launch(windows[0], caches[0])
        rows = sample_rows(tokens)
        latents = [torch.cat([windows[0].read(window_slots[t]), caches[0].read(seen(t))]).cpu() for t in rows]
        u = numeric.bf16_roundoff(device)
        want, bound = attention_reference.attention(q[rows].cpu(), sinks.cpu(), latents, u)
        return numeric.deviation(got[rows], want, bound)

    turn = cycle(zip(windows, caches, strict=True))
    return Prepared(lambda: launch(*next(turn)), work, verify)
