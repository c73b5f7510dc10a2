"""Moving cache between host and device: bulk copies, gathers of scattered entries, layer-wise loads,
write-back.

Three ways, because they load different parts of the machine: the copy engine (`bulk_copy`,
`LayerwiseLoad`: runs beside compute, wants long runs), an SM kernel reading pinned host memory
(`copy_entries`, `copy_pages`: the HiSparse miss path and scattered page loads; takes SMs and small
host-link reads), and the reverse of both for write-back.

`copy_entries` moves single entries between caches of the same format, whose pages may hold different
numbers of entries: data row and scale row of each, 576 + 8 bytes for a 584-byte entry. Either side may
be pinned host memory. Left out: choosing what to move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl
from torch import Tensor

from v4kernels import checks, layouts
from v4kernels.work import Work


@triton.jit
def copy_entries_kernel(
    source_ptr,
    target_ptr,
    source_slot_ptr,
    target_slot_ptr,
    count,
    DATA_WORDS: tl.constexpr,
    SCALE_WORDS: tl.constexpr,
    SOURCE_SHIFT: tl.constexpr,
    SOURCE_PAGE_WORDS: tl.constexpr,
    TARGET_SHIFT: tl.constexpr,
    TARGET_PAGE_WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    DATA_BLOCK: tl.constexpr,
    SCALE_BLOCK: tl.constexpr,
):
    entry = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    source = tl.load(source_slot_ptr + entry, mask=entry < count, other=-1)
    target = tl.load(target_slot_ptr + entry, mask=entry < count, other=-1)
    there = ((source >= 0) & (target >= 0))[:, None]
    source = tl.maximum(source, 0)
    target = tl.maximum(target, 0)
    source_page = (source >> SOURCE_SHIFT).to(tl.int64) * SOURCE_PAGE_WORDS
    target_page = (target >> TARGET_SHIFT).to(tl.int64) * TARGET_PAGE_WORDS
    source_row = source & ((1 << SOURCE_SHIFT) - 1)
    target_row = target & ((1 << TARGET_SHIFT) - 1)

    word = tl.arange(0, DATA_BLOCK)
    inside = there & (word < DATA_WORDS)[None, :]
    data = tl.load(source_ptr + (source_page + source_row * DATA_WORDS)[:, None] + word[None, :], mask=inside)
    tl.store(target_ptr + (target_page + target_row * DATA_WORDS)[:, None] + word[None, :], data, mask=inside)
    word = tl.arange(0, SCALE_BLOCK)
    inside = there & (word < SCALE_WORDS)[None, :]
    source_at = source_page + (DATA_WORDS << SOURCE_SHIFT) + source_row * SCALE_WORDS
    target_at = target_page + (DATA_WORDS << TARGET_SHIFT) + target_row * SCALE_WORDS
    scale = tl.load(source_ptr + source_at[:, None] + word[None, :], mask=inside)
    tl.store(target_ptr + target_at[:, None] + word[None, :], scale, mask=inside)


@triton.jit
def copy_pages_kernel(source_ptr, target_ptr, source_page_ptr, target_page_ptr, words, BLOCK: tl.constexpr):
    source = tl.load(source_page_ptr + tl.program_id(0)).to(tl.int64)
    target = tl.load(target_page_ptr + tl.program_id(0)).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(source_ptr + source * words + at, mask=at < words)
    tl.store(target_ptr + target * words + at, value, mask=at < words)


def pinned(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Host memory a kernel on `like`'s device can read; ordinary memory where there is no device."""
    return torch.empty(shape, dtype=like.dtype, pin_memory=like.device.type == "cuda")


def copy_entries(
    source: layouts.PagedCache, source_slots: Tensor, target: layouts.PagedCache, target_slots: Tensor
) -> None:
    """target[target_slots[i]] = source[source_slots[i]] for int32 [n] slots on the device; -1 on either
    side: skip.

    Distinct entries need distinct targets.
    """
    source.check("source")
    target.check("target")
    if source.fmt is not target.fmt:
        raise checks.KernelInputError(
            f"source is {source.fmt.name}, target {target.fmt.name}: formats must agree"
        )
    (count,) = source_slots.shape
    checks.require(source_slots, "source_slots", torch.int32, (count,))
    checks.require(target_slots, "target_slots", torch.int32, (count,))
    if count == 0:
        return
    fmt, rows = source.fmt, 8
    data_words, scale_words = fmt.data_bytes // 4, fmt.scale_bytes // 4
    copy_entries_kernel[(triton.cdiv(count, rows),)](
        source.data.view(torch.int32),
        target.data.view(torch.int32),
        source_slots,
        target_slots,
        count,
        DATA_WORDS=data_words,
        SCALE_WORDS=scale_words,
        SOURCE_SHIFT=source.shift,
        SOURCE_PAGE_WORDS=source.page_bytes // 4,
        TARGET_SHIFT=target.shift,
        TARGET_PAGE_WORDS=target.page_bytes // 4,
        ROWS=rows,
        DATA_BLOCK=triton.next_power_of_2(data_words),
        SCALE_BLOCK=triton.next_power_of_2(scale_words),
        num_warps=4,
    )


def copy_pages(source: Tensor, source_pages: Tensor, target: Tensor, target_pages: Tensor) -> None:
    """target[target_pages[i]] = source[source_pages[i]], uint8 caches of equal page size, by an SM kernel."""
    (count,) = source_pages.shape
    checks.require(source, "source", torch.uint8, (None, None))
    checks.require(target, "target", torch.uint8, (None, source.shape[1]))
    checks.require(source_pages, "source_pages", torch.int32, (count,))
    checks.require(target_pages, "target_pages", torch.int32, (count,))
    words = source.shape[1] // 4
    if count:
        copy_pages_kernel[(count, triton.cdiv(words, 1024))](
            source.view(torch.int32),
            target.view(torch.int32),
            source_pages,
            target_pages,
            words,
            BLOCK=1024,
            num_warps=4,
        )


def bulk_copy(target: Tensor, source: Tensor) -> None:
    """One run of pages by the copy engine, on the current stream; asynchronous when the host side is
    pinned."""
    if target.shape != source.shape:
        raise checks.KernelInputError(
            f"target {tuple(target.shape)} and source {tuple(source.shape)} must be equal"
        )
    target.copy_(source, non_blocking=True)


@dataclass(slots=True)
class LayerwiseLoad:
    """Pages of a prefix, loaded layer by layer on a stream of its own, so that layer l can start before
    l + 1 is there.

    `start` issues all copies; `wait(l)` makes the current stream wait for layer l. On a CPU both are
    immediate.
    """

    sources: Sequence[Tensor]
    targets: Sequence[Tensor]
    stream: torch.cuda.Stream | None = None
    events: list[torch.cuda.Event] = field(default_factory=list)

    def start(self) -> None:
        """Issue every layer's copy in order, each followed by an event."""
        if self.targets[0].device.type != "cuda":
            for target, source in zip(self.targets, self.sources, strict=True):
                bulk_copy(target, source)
            return
        self.stream = self.stream or torch.cuda.Stream(self.targets[0].device)
        self.stream.wait_stream(torch.cuda.current_stream())
        self.events.clear()
        with torch.cuda.stream(self.stream):
            for target, source in zip(self.targets, self.sources, strict=True):
                bulk_copy(target, source)
                event = torch.cuda.Event()
                event.record()
                self.events.append(event)

    def wait(self, layer: int) -> None:
        """Nothing issued after this on the current stream runs before `layer` has arrived."""
        if self.events:
            torch.cuda.current_stream().wait_event(self.events[layer])


def entries_work(entries: int, fmt: layouts.EntryFormat) -> Work:
    """Entries from the host: over the link once, written to HBM once; the slots are read."""
    moved = entries * fmt.entry_bytes
    return Work(read_bytes=8 * entries, write_bytes=moved, link_bytes=moved)


def pages_work(pages: int, page_bytes: int) -> Work:
    """Whole pages, padding included, since that is what moves."""
    return Work(write_bytes=pages * page_bytes, link_bytes=pages * page_bytes)
