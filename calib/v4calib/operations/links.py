"""The host link: bulk copies by the copy engine, and a gather of scattered entries by an SM kernel.

The gather is how HiSparse fetches its misses: 584-byte entries anywhere in pinned host memory. Both are timed
eagerly (a launch is nothing beside a transfer of a megabyte). The host side is pinned.
"""

from __future__ import annotations

from v4calib.grid import Grid, Point
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.operations.tensors import filled_cache
from v4calib.roofline import Work

ENTRY_BYTES = 584
_PAGE_ENTRIES = 64
WAYS = ("copy", "gather", "back")


class HostToDevice(LaunchedOperation):
    """Bytes over the link, by way."""

    name = "host_link"
    about = "host to device (copy engine, SM gather) and back"
    kernel = "v4kernels.page_copy"
    group = "links"
    cpu = False

    def points(self, model: str, axes: Grid) -> list[Point]:
        return [
            Point(self.name, "any", (("bytes", size), ("way", way)), i % 3 == 1 and way != "back")
            for i, size in enumerate(axes.link_bytes)
            for way in WAYS
        ]

    def configuration(self, point: Point) -> str:
        return point.word("way")

    def twin(self, point: Point) -> Point:
        return point.with_sizes(bytes=1 << 16)

    def work(self, point: Point) -> Work:
        moved = point["bytes"]
        if point.word("way") == "gather":
            moved = moved // ENTRY_BYTES * ENTRY_BYTES
        return Work(write_bytes=moved, link_bytes=moved)

    def footprint_bytes(self, point: Point) -> int:
        return point["bytes"]

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        from v4kernels import layouts, page_copy

        size, way = point["bytes"], point.word("way")
        pages = max(1, size // layouts.FP8_584.page_bytes(_PAGE_ENTRIES))
        data = filled_cache(layouts.FP8_584, pages, _PAGE_ENTRIES, torch_device)
        host = page_copy.pinned(tuple(data.shape), data)
        host.copy_(data)
        there = torch.zeros_like(data)
        if way != "gather":
            source, target = (host, there) if way == "copy" else (data, host)

            def check() -> str | None:
                page_copy.bulk_copy(target, source)
                if torch_device != "cpu":
                    torch.cuda.synchronize()
                return None if torch.equal(target.cpu(), source.cpu()) else f"{way} differs from its source"

            return TorchCase(lambda copy: page_copy.bulk_copy(target, source), check, 1, size)
        count = min(max(1, size // ENTRY_BYTES), pages * _PAGE_ENTRIES)
        order = torch.randperm(pages * _PAGE_ENTRIES)[:count].to(torch.int32).to(torch_device)
        place = torch.arange(count, dtype=torch.int32, device=torch_device)
        from_host = layouts.PagedCache(host, layouts.FP8_584, _PAGE_ENTRIES)
        to_device = layouts.PagedCache(there, layouts.FP8_584, _PAGE_ENTRIES)

        def gather(copy: int) -> None:
            page_copy.copy_entries(from_host, order, to_device, place)

        def check_gather() -> str | None:
            gather(0)
            few = slice(0, 64)
            want = layouts.PagedCache(data, layouts.FP8_584, _PAGE_ENTRIES).read(order[few])
            same = torch.equal(to_device.read(place[few]).cpu(), want.cpu())
            return None if same else "gathered entries differ from their sources"

        return TorchCase(gather, check_gather, 1, size)
