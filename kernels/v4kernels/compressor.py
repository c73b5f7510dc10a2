"""Compressors: gated pooling of tokens into cache entries, RMSNorm, RoPE, quantisation, paged write,
and state rings.

A token contributes a key and a gate per series and channel. Entry i of ratio r pools r tokens (C128,
V4.1's 2 and 1), or with overlap 2·r: the first series of group i - 1 and the second of group i (C4 and
its index twin). Per channel, softmax of (gate + position bias) in fp32 weighs the keys; then RMSNorm,
interleaved RoPE of the last 64 channels at position i·r, quantisation to the cache format.

Tokens before the present chunk come from a ring of fp32 states per request (position modulo ring
length), so decode append (chunks of 1-8 tokens), chunked prefill and resuming at any token are one code
path, and give the same bytes. `compress` first makes the entries that the chunk completes, then
`store_states` overwrites the ring. A ring longer than the window leaves room to take verify tokens
back: re-run from the accepted position.

Layout of a state row: [key series 0 | key series 1 | gate series 0 | gate series 1], `dim` channels
each (one series without overlap). Left out: the projections that make the rows, the Hadamard rotation
some engines apply to index keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from v4kernels import checks, layouts
from v4kernels.shapes import CompressorShape
from v4kernels.tile import e2m1_code, e2m1_scale_byte, e4m3_scale_byte, power_of_two, to_e4m3
from v4kernels.work import Work


@triton.jit
def store_entry(
    byte_ptr,
    fp8_ptr,
    half_ptr,
    float_ptr,
    x,
    slot,
    SHIFT: tl.constexpr,
    PAGE_BYTES: tl.constexpr,
    FORMAT: tl.constexpr,
):
    """Quantise one entry [dim] and write it to its slot."""
    page = (slot >> SHIFT).to(tl.int64) * PAGE_BYTES
    row = slot & ((1 << SHIFT) - 1)
    if FORMAT == "fp8_584":
        groups = x.reshape(8, 64)
        byte = e4m3_scale_byte(tl.max(tl.abs(groups), axis=1))
        scaled = to_e4m3(groups * power_of_two(254 - byte)[:, None])
        group = tl.arange(0, 8)
        at = page + row * 576 + group[:, None] * 64 + tl.arange(0, 64)[None, :]
        tl.store(fp8_ptr + at, scaled, mask=(group < 7)[:, None])
        scale_at = page + (576 << SHIFT) + row * 8
        tl.store(byte_ptr + scale_at + group, tl.where(group < 7, byte, 0).to(tl.uint8))
        half_at = page // 2 + row * 288 + 224 + (group[:, None] - 7) * 64 + tl.arange(0, 64)[None, :]
        # Round to nearest even by hand: the same bytes in the interpreter, whose casts truncate.
        bits = groups.to(tl.int32, bitcast=True)
        bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
        tl.store(half_ptr + half_at, bits, mask=(group == 7)[:, None])
    elif FORMAT == "index_fp8":
        byte = e4m3_scale_byte(tl.max(tl.abs(x), axis=0))
        scaled = to_e4m3(x * power_of_two(254 - byte))
        tl.store(fp8_ptr + page + row * 128 + tl.arange(0, 128), scaled)
        tl.store(float_ptr + (page + (128 << SHIFT) + row * 4) // 4, power_of_two(byte))
    elif FORMAT == "index_fp4":
        groups = x.reshape(4, 32)
        byte = e2m1_scale_byte(tl.max(tl.abs(groups), axis=1))
        code = e2m1_code(groups * power_of_two(254 - byte)[:, None])
        low, high = tl.split(code.reshape(64, 2))
        tl.store(byte_ptr + page + row * 64 + tl.arange(0, 64), (low | (high << 4)).to(tl.uint8))
        tl.store(byte_ptr + page + (64 << SHIFT) + row * 4 + tl.arange(0, 4), byte.to(tl.uint8))
    else:
        tl.static_assert(FORMAT == "fp4_288")
        groups = x.reshape(32, 16)
        amax = tl.max(tl.abs(groups), axis=1)
        scale = to_e4m3(tl.minimum(tl.maximum(amax * (1.0 / 6.0), 0.001953125), 448.0))
        scaled = groups / scale.to(tl.float32)[:, None]
        code = e2m1_code(tl.minimum(tl.maximum(scaled, -6.0), 6.0))
        low, high = tl.split(code.reshape(256, 2))
        tl.store(byte_ptr + page + row * 256 + tl.arange(0, 256), (low | (high << 4)).to(tl.uint8))
        tl.store(fp8_ptr + page + (256 << SHIFT) + row * 32 + tl.arange(0, 32), scale)


@triton.jit
def compress_kernel(
    state_ptr,
    ring_ptr,
    bias_ptr,
    norm_ptr,
    rope_ptr,
    entry_ptr,
    chunk_ptr,
    byte_ptr,
    fp8_ptr,
    half_ptr,
    float_ptr,
    eps,
    RING: tl.constexpr,
    DIM: tl.constexpr,
    RATIO: tl.constexpr,
    SERIES: tl.constexpr,
    TILE: tl.constexpr,
    SHIFT: tl.constexpr,
    PAGE_BYTES: tl.constexpr,
    FORMAT: tl.constexpr,
):
    entry = tl.program_id(0)
    chunk = tl.load(entry_ptr + entry * 3)
    group = tl.load(entry_ptr + entry * 3 + 1)
    slot = tl.load(entry_ptr + entry * 3 + 2)
    first_row = tl.load(chunk_ptr + chunk * 3)
    first_position = tl.load(chunk_ptr + chunk * 3 + 1)
    ring = tl.load(chunk_ptr + chunk * 3 + 2).to(tl.int64) * RING
    WIDTH: tl.constexpr = 2 * SERIES * DIM
    WINDOW: tl.constexpr = RATIO * SERIES
    channel = tl.arange(0, DIM)

    best = tl.full((DIM,), float("-inf"), tl.float32)
    total = tl.zeros((DIM,), tl.float32)
    pooled = tl.zeros((DIM,), tl.float32)
    for start in range(0, WINDOW, TILE):
        j = start + tl.arange(0, TILE)
        position = (group + 1) * RATIO - WINDOW + j
        series = (j * SERIES) // WINDOW
        exists = (position >= 0)[:, None]
        fresh = exists & (position >= first_position)[:, None]
        old = exists & (position < first_position)[:, None]
        column = (series * DIM)[:, None] + channel[None, :]
        fresh_at = (first_row + position - first_position).to(tl.int64)[:, None] * WIDTH + column
        old_at = (ring + position % RING)[:, None] * WIDTH + column
        key = tl.load(state_ptr + fresh_at, mask=fresh, other=0.0) + tl.load(
            ring_ptr + old_at, mask=old, other=0.0
        )
        fresh_at += SERIES * DIM
        old_at += SERIES * DIM
        gate = tl.load(state_ptr + fresh_at, mask=fresh, other=0.0) + tl.load(
            ring_ptr + old_at, mask=old, other=0.0
        )
        gate += tl.load(bias_ptr + (j % RATIO)[:, None] * (SERIES * DIM) + column)
        gate = tl.where(exists, gate, float("-inf"))
        # The last tokens of a window always exist, but a whole tile of the group before may not.
        new_best = tl.maximum(best, tl.max(gate, axis=0))
        base = tl.where(new_best == float("-inf"), 0.0, new_best)
        weight = tl.exp(gate - base[None, :])
        decay = tl.exp(best - base)
        total = total * decay + tl.sum(weight, axis=0)
        pooled = pooled * decay + tl.sum(weight * key, axis=0)
        best = new_best
    x = pooled / total
    x = x * tl.rsqrt(tl.sum(x * x, axis=0) / DIM + eps) * tl.load(norm_ptr + channel)

    # Interleaved RoPE on the last 64 channels: pair (2p, 2p + 1) turns by angle p.
    even, odd = tl.split(x.reshape(DIM // 2, 2))
    pair = tl.arange(0, DIM // 2) - (DIM // 2 - 32)
    table = rope_ptr + (group * RATIO).to(tl.int64) * 64 + pair
    cos = tl.load(table, mask=pair >= 0, other=1.0)
    sin = tl.load(table + 32, mask=pair >= 0, other=0.0)
    x = tl.join(even * cos - odd * sin, odd * cos + even * sin).reshape(DIM)
    store_entry(byte_ptr, fp8_ptr, half_ptr, float_ptr, x, slot, SHIFT, PAGE_BYTES, FORMAT)


@triton.jit
def store_states_kernel(
    state_ptr, ring_ptr, row_ptr, chunk_ptr, RING: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    chunk = tl.load(row_ptr + row)
    first_row = tl.load(chunk_ptr + chunk * 3)
    position = tl.load(chunk_ptr + chunk * 3 + 1) + row - first_row
    rows = tl.load(chunk_ptr + chunk * 3 + 3) - first_row
    # Only the last RING tokens of the chunk: two that share a place would race.
    if row - first_row >= rows - RING:
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        place = tl.load(chunk_ptr + chunk * 3 + 2).to(tl.int64) * RING + position % RING
        tl.store(ring_ptr + place * WIDTH + at, tl.load(state_ptr + row.to(tl.int64) * WIDTH + at))


@dataclass(frozen=True, slots=True)
class Chunks:
    """Tokens of several requests, one run each, and the entries that they complete. Made once per step,
    for all layers.

    chunks   int32 [requests + 1, 3]: first row, first position, ring; the last row only holds the end
    of the rows rows     int32 [tokens]: chunk of each row entries  int32 [entries, 3]: chunk, group,
    output slot
    """

    chunks: Tensor
    rows: Tensor
    entries: Tensor


def plan(
    lengths: list[int],
    positions: list[int],
    rings: list[int],
    ratio: int,
    page_table: Tensor,
    page_entries: int,
    device: torch.device | str = "cpu",
) -> Chunks:
    """Chunk r: `lengths[r]` tokens from position `positions[r]`, states in ring `rings[r]`, pages in
    page_table[r]."""
    chunks, entries, rows, row = [], [], [], 0
    for r, (length, position) in enumerate(zip(lengths, positions, strict=True)):
        chunks.append([row, position, rings[r]])
        rows += [r] * length
        row += length
        groups = torch.arange(position // ratio, (position + length) // ratio)
        slots = layouts.slots_of(page_table[r], page_entries, groups)
        entries += [[r, int(g), int(s)] for g, s in zip(groups, slots, strict=True)]
    chunks.append([row, 0, 0])
    return Chunks(
        torch.tensor(chunks, dtype=torch.int32, device=device),
        torch.tensor(rows, dtype=torch.int32, device=device),
        torch.tensor(entries, dtype=torch.int32, device=device).view(-1, 3),
    )


def compress(
    states: Tensor,
    rings: Tensor,
    bias: Tensor,
    norm: Tensor,
    rope: Tensor,
    chunks: Chunks,
    cache: layouts.PagedCache,
    shape: CompressorShape,
    *,
    eps: float = 1e-6,
) -> None:
    """Write the completed entries into `cache`, then the states of the chunk into `rings`.

    states  fp32 [tokens, state_width], the projected keys and gates of this chunk
    rings   fp32 [rings, ring, state_width], ring >= shape.window
    bias    fp32 [ratio, series · dim]
    norm    fp32 [dim]
    rope    fp32 [positions, 64]: 32 cosines, 32 sines of each position
    """
    tokens = states.shape[0]
    checks.require(states, "states", torch.float32, (tokens, shape.state_width))
    checks.require(rings, "rings", torch.float32, (None, None, shape.state_width))
    if rings.shape[1] < shape.window:
        raise checks.KernelInputError(
            f"ring of {rings.shape[1]} tokens, must hold the window of {shape.window}"
        )
    checks.require(bias, "bias", torch.float32, (shape.ratio, shape.series * shape.dim))
    checks.require(norm, "norm", torch.float32, (shape.dim,))
    checks.require(rope, "rope", torch.float32, (None, 64))
    cache.check("cache")
    if cache.fmt.dim != shape.dim:
        raise checks.KernelInputError(
            f"{cache.fmt.name} has {cache.fmt.dim} channels, the compressor {shape.dim}"
        )
    entries = chunks.entries.shape[0]
    if entries:
        compress_kernel[(entries,)](
            states,
            rings,
            bias,
            norm,
            rope,
            chunks.entries,
            chunks.chunks,
            *cache.views(),
            cache.data.view(torch.float32),
            eps,
            RING=rings.shape[1],
            DIM=shape.dim,
            RATIO=shape.ratio,
            SERIES=shape.series,
            TILE=min(8, shape.window),
            SHIFT=cache.shift,
            PAGE_BYTES=cache.page_bytes,
            FORMAT=cache.fmt.name,
            num_warps=4,
        )
    if tokens:
        block = min(shape.state_width, 1024)
        store_states_kernel[(tokens, shape.state_width // block)](
            states,
            rings,
            chunks.rows,
            chunks.chunks,
            RING=rings.shape[1],
            WIDTH=shape.state_width,
            BLOCK=block,
            num_warps=4,
        )


def work(
    tokens: int, entries: int, shape: CompressorShape, fmt: layouts.EntryFormat, *, decode: bool
) -> Work:
    """Counts of one launch pair. Decode reads each entry's window from the ring; prefill reads its
    chunk once.

    FP32 per window token and channel: bias add, max, subtract, exp, two sums (6); per entry channel
    about 12 for norm, RoPE and quantisation.
    """
    row = 4 * shape.state_width
    pooled = row // shape.series  # each token of the window contributes one series of key and gate
    read = entries * shape.window * pooled if decode else tokens * row
    return Work(
        read_bytes=read + (tokens * row if decode else 0),
        write_bytes=entries * fmt.entry_bytes + tokens * row,
        fp32_ops=entries * shape.dim * (6 * shape.window + 12),
    )
