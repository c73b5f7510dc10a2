"""How entries lie in a cache page: all data rows first, then all scale rows, then padding.

    page = [entry 0 data | entry 1 data | ... | entry 0 scales | entry 1 scales | ... | padding]

This is the layout of SGLang's V4 pools and of FlashMLA and DeepGEMM, so a row of data starts on a 16-byte
boundary though 584 is not a multiple of 16. A *slot* is page * entries_per_page + entry. A cache is one
uint8 tensor [pages, page_bytes]. `encode` and `decode` convert [n, dim] values; `write` and `read` move
them by slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from v4kernels import checks, quant
from v4kernels.shapes import INDEX_DIM, NOPE_DIM, ROPE_DIM


@dataclass(frozen=True, slots=True)
class EntryFormat:
    """Bytes of one entry; `data_bytes` and `scale_bytes` lie apart in the page."""

    name: str
    dim: int
    data_bytes: int
    scale_bytes: int
    page_align: int

    @property
    def entry_bytes(self) -> int:
        return self.data_bytes + self.scale_bytes

    def page_bytes(self, entries: int) -> int:
        """Bytes of a page of `entries`, padded as the engine pads it."""
        return -(-entries * self.entry_bytes // self.page_align) * self.page_align


FP8_584 = EntryFormat("fp8_584", 512, data_bytes=448 + 128, scale_bytes=8, page_align=576)
FP4_288 = EntryFormat("fp4_288", 512, data_bytes=256, scale_bytes=32, page_align=16)
FP8_528 = EntryFormat("fp8_528", 512, data_bytes=512, scale_bytes=16, page_align=16)
INDEX_FP8 = EntryFormat("index_fp8", INDEX_DIM, data_bytes=128, scale_bytes=4, page_align=1)
INDEX_FP4 = EntryFormat("index_fp4", INDEX_DIM, data_bytes=64, scale_bytes=4, page_align=1)

FORMATS = {f.name: f for f in (FP8_584, FP4_288, FP8_528, INDEX_FP8, INDEX_FP4)}


def entry_format(name: str) -> EntryFormat:
    """The format called `name`."""
    if name not in FORMATS:
        raise KeyError(f"no entry format {name!r}; choose one of {', '.join(FORMATS)}")
    return FORMATS[name]


def encode(fmt: EntryFormat, x: Tensor) -> tuple[Tensor, Tensor]:
    """(data [n, data_bytes], scales [n, scale_bytes]) of values [n, dim]."""
    if fmt is FP8_584:
        data, scale = quant.to_e4m3(x[:, :NOPE_DIM], 64)
        rope = x[:, NOPE_DIM:].to(torch.bfloat16).contiguous().view(torch.uint8)
        return torch.cat([data, rope], 1), torch.nn.functional.pad(scale, (0, 1))
    if fmt is FP4_288:
        return quant.to_nvfp4(x)
    if fmt is FP8_528:
        return quant.to_e4m3(x, 32)
    if fmt is INDEX_FP4:
        return quant.to_mxfp4(x)
    data, scale = quant.to_e4m3(x, INDEX_DIM)
    return data, quant.ue8m0_value(scale).view(torch.uint8)


def decode(fmt: EntryFormat, data: Tensor, scales: Tensor) -> Tensor:
    """fp32 values [n, dim]; exact."""
    if fmt is FP8_584:
        nope = quant.from_e4m3(data[:, :NOPE_DIM].contiguous(), scales[:, :7])
        rope = data[:, NOPE_DIM:].contiguous().view(torch.bfloat16).float()
        assert rope.shape[1] == ROPE_DIM
        return torch.cat([nope, rope], 1)
    if fmt is FP4_288:
        return quant.from_nvfp4(data, scales.contiguous())
    if fmt is FP8_528:
        return quant.from_e4m3(data.contiguous(), scales)
    if fmt is INDEX_FP4:
        return quant.from_mxfp4(data, scales)
    return data.contiguous().view(torch.float8_e4m3fn).float() * scales.contiguous().view(torch.float32)


@dataclass(frozen=True, slots=True)
class PagedCache:
    """A cache tensor with what is needed to read it."""

    data: Tensor
    fmt: EntryFormat
    page_entries: int

    @property
    def shift(self) -> int:
        """log2 of the entries per page."""
        return self.page_entries.bit_length() - 1

    @property
    def page_bytes(self) -> int:
        return int(self.data.shape[1])

    def check(self, name: str) -> None:
        """Raise where a kernel could not read it."""
        checks.choose(
            self.page_entries & (self.page_entries - 1), f"{name}: bits beyond a power of two", (0,)
        )
        wanted = self.fmt.page_bytes(self.page_entries)
        checks.require(self.data, f"{name} ({self.fmt.name})", torch.uint8, (None, wanted))

    def views(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same bytes as uint8, e4m3 and bf16."""
        return self.data, self.data.view(torch.float8_e4m3fn), self.data.view(torch.bfloat16)

    def write(self, slots: Tensor, x: Tensor) -> None:
        write(self.fmt, self.data, self.page_entries, slots, x)

    def read(self, slots: Tensor) -> Tensor:
        return read(self.fmt, self.data, self.page_entries, slots)


def new_cache(fmt: EntryFormat, pages: int, entries: int, device: torch.device | str = "cpu") -> Tensor:
    """Uninitialised cache [pages, page_bytes]."""
    return torch.empty(pages, fmt.page_bytes(entries), dtype=torch.uint8, device=device)


def _byte_offsets(fmt: EntryFormat, cache: Tensor, entries: int, slots: Tensor) -> tuple[Tensor, Tensor]:
    page, entry = slots.long() // entries, slots.long() % entries
    base = page * cache.shape[1]
    scales = base + entries * fmt.data_bytes + entry * fmt.scale_bytes
    data = base + entry * fmt.data_bytes
    steps = torch.arange(max(fmt.data_bytes, fmt.scale_bytes), device=slots.device)
    return data[:, None] + steps[: fmt.data_bytes], scales[:, None] + steps[: fmt.scale_bytes]


def write(fmt: EntryFormat, cache: Tensor, entries: int, slots: Tensor, x: Tensor) -> None:
    """Encode values [n, dim] into the slots [n] of `cache`, whose pages hold `entries` each."""
    data, scales = encode(fmt, x)
    at_data, at_scales = _byte_offsets(fmt, cache, entries, slots)
    flat = cache.view(-1)
    flat[at_data] = data
    flat[at_scales] = scales


def read(fmt: EntryFormat, cache: Tensor, entries: int, slots: Tensor) -> Tensor:
    """fp32 values [n, dim] of slots [n]."""
    at_data, at_scales = _byte_offsets(fmt, cache, entries, slots)
    flat = cache.view(-1)
    return decode(fmt, flat[at_data], flat[at_scales])


def slots_of(page_table: Tensor, entries: int, logical: Tensor) -> Tensor:
    """Physical slots of logical entry numbers under one request's page table [pages]."""
    return page_table.long()[logical.long() // entries] * entries + logical.long() % entries
