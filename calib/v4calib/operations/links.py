"""The host link: how many bytes, by which way, and with what beside it.

copy     whole pages to the device by the copy engine, in one run
back     the same to the host: write-back
layers   pages of a prefix layer by layer, a copy and an event each, until the last is there (HiCache, direct)
pages    scattered pages to the device by an SM kernel (HiCache, kernel)
spill    scattered pages to the host by an SM kernel
gather   scattered 584-byte entries to the device by an SM kernel (the miss path of HiSparse)

`beside` is `nothing`, or `compute`: BF16 products on another stream that last longer than the transfer. An SM
kernel then shares SMs with them, a copy engine does not. The host side is pinned. Only the transfer is timed:
eagerly, since a launch is nothing beside a transfer of a megabyte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from v4calib.grid import Grid, Point
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.operations.tensors import filled_cache
from v4calib.roofline import Work

if TYPE_CHECKING:
    from v4calib.device import Case, Variant

ENTRY_BYTES, PAGE_BYTES = 584, 37_440
WAYS = ("copy", "back", "layers", "pages", "spill", "gather")
LAYERS = 16
_PAGE_ENTRIES = 64
_SIDE = 4096  # of the products beside a transfer
_COVERS = 1.5  # times the transfer that they should last


class HostLink(LaunchedOperation):
    """Bytes over the link, by way."""

    name = "host_link"
    about = "host to device and back: copy engine, SM kernels, layer by layer, beside compute"
    kernel = "v4kernels.page_copy"
    group = "links"
    cpu = False

    def points(self, model: str, axes: Grid) -> list[Point]:
        return [
            Point(self.name, "any", (("bytes", size), ("way", way), ("beside", beside)), i % 3 == 1)
            for i, size in enumerate(axes.link_bytes)
            for way in WAYS
            for beside in ("nothing", "compute")
            if beside == "nothing" or i % 3 != 1  # what is held out is the way itself
        ]

    def configuration(self, point: Point) -> str:
        return point.word("way")

    def twin(self, point: Point) -> Point:
        return point.with_sizes(bytes=2 * LAYERS * PAGE_BYTES, beside="nothing")

    def work(self, point: Point) -> Work:
        moved = moved_bytes(point)
        to_host = point.word("way") in ("back", "spill")
        return Work(read_bytes=moved if to_host else 0, write_bytes=0 if to_host else moved, link_bytes=moved)

    def footprint_bytes(self, point: Point) -> int:
        return moved_bytes(point)

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        pages = _pages(point)
        move, check = _moves(point.word("way"), pages, torch_device)

        def checked() -> str | None:
            move()
            if torch_device != "cpu":
                torch.cuda.synchronize()
            return check()

        busy = point.word("beside") == "compute"
        clock = BesideCompute() if busy else None
        return TorchCase(lambda copy: move(), checked, 1, moved_bytes(point), clock)


def moved_bytes(point: Point) -> int:
    """Whole pages, or whole entries."""
    return _pages(point) * (_PAGE_ENTRIES * ENTRY_BYTES if point.word("way") == "gather" else PAGE_BYTES)


def _pages(point: Point) -> int:
    """A multiple of the layers, so that every way moves the same."""
    return max(point["bytes"] // PAGE_BYTES // LAYERS, 1) * LAYERS


def _moves(way: str, pages: int, device: str) -> tuple[Callable[[], None], Callable[[], str | None]]:
    """(one transfer, what is wrong with where it arrived)."""
    import torch

    from v4kernels import layouts, page_copy

    data = filled_cache(layouts.FP8_584, pages, _PAGE_ENTRIES, device)
    host = page_copy.pinned(tuple(data.shape), data)
    host.copy_(data)
    to_host = way in ("back", "spill")
    source = data if to_host else host
    target = page_copy.pinned(tuple(data.shape), data) if to_host else torch.empty_like(data)
    target.zero_()
    order = torch.randperm(pages).to(torch.int32).to(device)
    place = torch.arange(pages, dtype=torch.int32, device=device)

    def arrived(expected: Any) -> str | None:
        return None if torch.equal(target.cpu(), expected.cpu()) else f"{way} differs from its source"

    if way in ("copy", "back"):
        return lambda: page_copy.bulk_copy(target, source), lambda: arrived(source)
    if way == "layers":
        load = page_copy.LayerwiseLoad(list(source.chunk(LAYERS)), list(target.chunk(LAYERS)))

        def by_layer() -> None:
            load.start()
            load.wait(LAYERS - 1)

        return by_layer, lambda: arrived(source)
    if way in ("pages", "spill"):
        return (
            lambda: page_copy.copy_pages(source, order, target, place),
            lambda: arrived(source.cpu()[order.cpu().long()]),
        )
    entries = torch.randperm(pages * _PAGE_ENTRIES).to(torch.int32).to(device)
    slots = torch.arange(pages * _PAGE_ENTRIES, dtype=torch.int32, device=device)
    there = layouts.PagedCache(source, layouts.FP8_584, _PAGE_ENTRIES)
    here = layouts.PagedCache(target, layouts.FP8_584, _PAGE_ENTRIES)

    def gathered() -> str | None:
        few = torch.arange(min(64, len(slots)), device=device)
        want = layouts.PagedCache(data, layouts.FP8_584, _PAGE_ENTRIES).read(entries[few])
        same = torch.equal(here.read(few).cpu(), want.cpu())
        return None if same else "gathered entries differ from their sources"

    return lambda: page_copy.copy_entries(there, entries, here, slots), gathered


@dataclass
class BesideCompute:
    """Times a transfer on the current stream while products run on another one, from before to after it."""

    products: int = 8
    _operands: list[Any] = field(default_factory=list)
    _stream: Any = None

    def sample_us(self, case: Case, variant: Variant, count: int) -> list[float]:
        samples: list[float] = []
        while len(samples) < count:
            us, compute_us = self._once(case)
            if compute_us < us:  # they ended first, and the transfer ran alone for a while
                wanted = int(_COVERS * self.products * us / max(compute_us, 1.0)) + 1
                self.products = min(4 * self.products, wanted)
                continue
            samples.append(us)
        return samples

    def _once(self, case: Case) -> tuple[float, float]:
        """The transfer, and from its start to the end of the products."""
        import torch

        if self._stream is None:
            self._stream = torch.cuda.Stream()
            self._operands = [
                torch.randn(_SIDE, _SIDE, device="cuda").to(torch.bfloat16) for _ in range(2)
            ] + [torch.empty(_SIDE, _SIDE, dtype=torch.bfloat16, device="cuda")]
        a, b, out = self._operands
        running, begin, end, done = (torch.cuda.Event(enable_timing=True) for _ in range(4))
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            torch.mm(a, b, out=out)
            running.record()
            for _ in range(self.products):
                torch.mm(a, b, out=out)
            done.record()
        torch.cuda.current_stream().wait_event(running)
        begin.record()
        case.launch(0)
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) * 1e3, float(begin.elapsed_time(done)) * 1e3
