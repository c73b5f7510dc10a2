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
    compressor,
    index_scan,
    layouts,
    mhc,
    moe_grouped_gemm,
    numeric,
    page_copy,
    quant,
    topk,
)
from v4kernels.hca_attention import hca_attention
from v4kernels.hca_attention import work as hca_work
from v4kernels.reference import attention as attention_reference
from v4kernels.reference import compressor as compressor_reference
from v4kernels.reference import index_scan as index_reference
from v4kernels.reference import mhc as mhc_reference
from v4kernels.reference import moe_grouped_gemm as moe_reference
from v4kernels.reference import topk as topk_reference
from v4kernels.shapes import HEAD_DIM, INDEX_DIM, STREAMS, WINDOW, CompressorShape, ModelShape
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


def _generator(device: torch.device, seed: int) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def _sample(tokens: int, limit: int = 3) -> list[int]:
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
    g = _generator(device, seed)
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
        rows = _sample(tokens)
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
    g = _generator(device, seed)
    logits = [torch.randn(rows, columns, device=device, generator=g) for _ in range(layers)]
    lengths = torch.full((rows,), columns, dtype=torch.int32, device=device)

    def verify() -> numeric.Deviation:
        got = topk.topk(logits[0], lengths, k).cpu()
        chosen = _sample(rows)
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
    g = _generator(device, seed)
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
        rows = _sample(tokens)
        latents = [torch.cat([windows[0].read(window_slots[t]), caches[0].read(seen(t))]).cpu() for t in rows]
        u = numeric.bf16_roundoff(device)
        want, bound = attention_reference.attention(q[rows].cpu(), sinks.cpu(), latents, u)
        return numeric.deviation(got[rows], want, bound)

    turn = cycle(zip(windows, caches, strict=True))
    return Prepared(lambda: launch(*next(turn)), work, verify)


def prepare_compressor(
    shape: CompressorShape,
    fmt: layouts.EntryFormat,
    requests: int,
    width: int,
    device: torch.device,
    *,
    context: int = 4096,
    ring: int | None = None,
    seed: int = 0,
) -> Prepared:
    """Append `width` tokens to each request; the last of them completes an entry of ratio `shape.ratio`."""
    g = _generator(device, seed)
    end = context // shape.ratio * shape.ratio
    page_entries = 2 if shape.ratio == 128 else 64
    states = torch.randn(requests * width, shape.state_width, device=device, generator=g)
    ring = ring or max(shape.window, 8)
    rings = torch.randn(requests, ring, shape.state_width, device=device, generator=g)
    bias = torch.randn(shape.ratio, shape.series * shape.dim, device=device, generator=g)
    norm = 0.5 + torch.rand(shape.dim, device=device, generator=g)
    table = compressor_reference.rope_table(end, 160000.0)
    rope = table.to(device)
    pages = -(-(end // shape.ratio) // page_entries)
    cache = random_cache(fmt, requests * pages, page_entries, device, g)
    page_table = torch.arange(requests * pages, dtype=torch.int32).view(requests, pages)
    positions = [end - width] * requests
    chunks = compressor.plan(
        [width] * requests, positions, list(range(requests)), shape.ratio, page_table, page_entries, device
    )

    def run() -> None:
        compressor.compress(states, rings, bias, norm, rope, chunks, cache, shape)

    def verify() -> numeric.Deviation:
        before = rings[0].cpu().double()
        run()
        window = torch.arange(end - shape.window, end)
        rows = torch.where(
            (window >= end - width)[:, None],
            states[:width].cpu().double()[(window - end).clamp(min=-width) % width],
            before[window % ring],
        )
        parts = (bias.cpu(), norm.cpu(), table[end - shape.window :], shape, 1e-6)
        want = compressor_reference.compress(rows, *parts)[-1:]
        slot = layouts.slots_of(page_table[0], page_entries, torch.tensor([end // shape.ratio - 1]))
        # The stored entry is one rounding of the format away; a whole step of the largest block bounds it.
        step = 2.0**-3 if fmt.name.startswith(("fp8", "index_fp8")) else 0.5
        return numeric.deviation(cache.read(slot.to(device)), want, step * want.abs().max())

    entries = chunks.entries.shape[0]
    return Prepared(run, compressor.work(requests * width, entries, shape, fmt, decode=True), verify)


def prepare_mhc(shape: ModelShape, tokens: int, device: torch.device, *, seed: int = 0) -> Prepared:
    """One collapse and one expand."""
    g = _generator(device, seed)
    x = torch.randn(tokens, STREAMS, shape.hidden, device=device, generator=g).to(torch.bfloat16)
    y = torch.randn(tokens, shape.hidden, device=device, generator=g).to(torch.bfloat16)
    fn = (
        torch.randn(mhc.MIXES, STREAMS * shape.hidden, device=device, generator=g)
        / (STREAMS * shape.hidden) ** 0.5
    )
    base = torch.randn(mhc.MIXES, device=device, generator=g)
    scale = torch.ones(3, device=device)

    def run() -> Tensor:
        _, post, comb = mhc.collapse(x, fn, base, scale)
        return mhc.expand(x, y, post, comb)

    def verify() -> numeric.Deviation:
        rows = _sample(tokens)
        streams = x[rows].double().cpu()
        _, post, comb = mhc_reference.collapse(streams, fn.cpu(), base.cpu(), scale.cpu(), 1e-6, 1e-6, 20)
        want = mhc_reference.expand(streams, y[rows].double().cpu(), post, comb)
        slack = 1e-3 * (streams.abs().sum(1) + 2 * y[rows].double().cpu().abs())
        bound = numeric.bf16_roundoff(device) * want.abs() + slack[:, None, :]
        return numeric.deviation(run()[rows], want, bound)

    return Prepared(run, mhc.work(tokens, shape.hidden), verify)


def prepare_moe(
    shape: ModelShape, counts: list[int], activation: str, device: torch.device, *, seed: int = 0
) -> Prepared:
    """Both expert GEMMs and the SwiGLU for rows distributed as `counts` over this rank's experts."""
    g = _generator(device, seed)
    blocks = moe_grouped_gemm.plan_blocks(counts, device)

    def weight(outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
        size = (len(counts), outputs, inputs // 2)
        packed = torch.randint(0, 256, size, dtype=torch.uint8, device=device, generator=g)
        scales = torch.full((len(counts), outputs, inputs // 32), 122, dtype=torch.uint8, device=device)
        return packed, scales

    up, down = weight(2 * shape.expert_dim, shape.hidden), weight(shape.hidden, shape.expert_dim)
    values = torch.randn(blocks.rows, shape.hidden, device=device, generator=g)
    x: Tensor
    scale: Tensor | None = None
    if activation == "bf16":
        x = values.to(torch.bfloat16)
    elif activation == "fp8":
        data, scale = quant.to_e4m3(values, 32)
        x = data.view(torch.float8_e4m3fn)
    else:
        x, scale = quant.to_mxfp4(values)

    def first() -> Tensor:
        return moe_grouped_gemm.grouped_gemm(x, scale, *up, blocks, activation=activation)

    def run() -> Tensor:
        hidden, hidden_scale = moe_grouped_gemm.swiglu(first(), activation=activation)
        return moe_grouped_gemm.grouped_gemm(hidden, hidden_scale, *down, blocks, activation=activation)

    def verify() -> numeric.Deviation:
        expert = max(range(len(counts)), key=lambda e: counts[e])
        row = sum(counts[:expert])
        if activation == "bf16":
            decoded = x[row : row + 1].float()
        elif activation == "fp8":
            decoded = quant.from_e4m3(x[row : row + 1].view(torch.uint8), scale[row : row + 1])  # type: ignore[index]
        else:
            decoded = quant.from_mxfp4(x[row : row + 1], scale[row : row + 1])  # type: ignore[index]
        w = quant.from_mxfp4(up[0][expert : expert + 1], up[1][expert : expert + 1])
        want, magnitude = moe_reference.grouped_gemm(decoded.cpu(), w.cpu(), [1])
        bound = shape.hidden * numeric.U_FP32 * magnitude + numeric.bf16_roundoff(device) * want.abs()
        return numeric.deviation(first()[row : row + 1], want, bound)

    return Prepared(run, moe_grouped_gemm.work(counts, shape, activation), verify)


def prepare_entry_misses(
    fmt: layouts.EntryFormat, host_entries: int, misses: int, device: torch.device, *, seed: int = 0
) -> Prepared:
    """The HiSparse miss path: `misses` scattered entries from pinned host memory into a device buffer."""
    g = _generator(torch.device("cpu"), seed)
    pages = -(-host_entries // 64)
    host = random_cache(fmt, pages, 64, torch.device("cpu"), g)
    if device.type == "cuda":
        host = layouts.PagedCache(host.data.pin_memory(), fmt, 64)
    target = layouts.PagedCache(layouts.new_cache(fmt, -(-misses // 64), 64, device), fmt, 64)
    source_slots = torch.randperm(host_entries, generator=g)[:misses].to(torch.int32).to(device)
    target_slots = torch.arange(misses, dtype=torch.int32, device=device)

    def run() -> None:
        page_copy.copy_entries(host, source_slots, target, target_slots)

    def verify() -> numeric.Deviation:
        run()
        want = host.read(source_slots.cpu())
        return numeric.deviation(target.read(target_slots), want, 0.0)

    return Prepared(run, page_copy.entries_work(misses, fmt), verify)
