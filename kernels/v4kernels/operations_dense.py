"""The rest of `operations`: compressor, mHC, experts and host misses, with the same contract."""

from __future__ import annotations

import torch
from torch import Tensor

from v4kernels import compressor, layouts, mhc, moe_grouped_gemm, numeric, page_copy, quant
from v4kernels.operations import Prepared, random_cache, sample_rows, seeded
from v4kernels.reference import compressor as compressor_reference
from v4kernels.reference import mhc as mhc_reference
from v4kernels.reference import moe_grouped_gemm as moe_reference
from v4kernels.shapes import STREAMS, CompressorShape, ModelShape


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
    g = seeded(device, seed)
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
    g = seeded(device, seed)
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
        rows = sample_rows(tokens)
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
    g = seeded(device, seed)
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
    g = seeded(torch.device("cpu"), seed)
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
