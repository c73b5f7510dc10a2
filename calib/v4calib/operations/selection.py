"""What lies between top-k and attention: entry numbers to cache slots, and the gather of entries by itself.

`translate` runs in front of every attention over a selection and is part of a layer's module. Attention
gathers its entries on the way, so `gather` (decoded to BF16, as prefill kernels of engines take them) is
measured to be known, and enters no module. Entries are scattered over histories of 16,384 entries; counts are
the kernels' own.
"""

from __future__ import annotations

import math

from v4calib.grid import Grid, Point, token_points
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.operations.tensors import filled_cache, sample
from v4calib.roofline import Work
from v4kernels.shapes import HEAD_DIM, model

PAGE_ENTRIES = 64
ENTRY_BYTES = {"fp8_584": 584, "fp4_288": 288}
_HISTORY_ENTRIES = 16_384
_REQUESTS = 64  # distinct histories
_GATHER_TOKENS = 2048  # more give gigabytes of BF16 and the same rate


class Translate(LaunchedOperation):
    """Selected entries to slots under page tables."""

    name = "translate"
    about = "selected entries to cache slots"
    kernel = "v4kernels.gather"
    group = "tokens"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        return token_points(self.name, model_name, axes)

    def twin(self, point: Point) -> Point:
        return point.with_sizes(tokens=1)

    def work(self, point: Point) -> Work:
        chosen = point["tokens"] * model(point.model).index_topk
        return Work(read_bytes=4 * chosen, write_bytes=4 * chosen)

    def footprint_bytes(self, point: Point) -> int:
        return self.work(point).hbm_bytes

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        from v4kernels import gather as kernel
        from v4kernels import layouts

        tokens, k = point["tokens"], model(point.model).index_topk
        requests = min(tokens, _REQUESTS)
        pages = _HISTORY_ENTRIES // PAGE_ENTRIES
        table = torch.randperm(requests * pages).to(torch.int32).view(requests, pages).to(torch_device)
        request = (torch.arange(tokens, device=torch_device) % requests).to(torch.int32)
        chosen = [
            torch.randint(0, _HISTORY_ENTRIES, (tokens, k), dtype=torch.int32, device=torch_device)
            for _ in range(copies)
        ]

        def refer(row: int, copy: int) -> torch.Tensor:
            return layouts.slots_of(table[int(request[row])], PAGE_ENTRIES, chosen[copy][row])

        def run(copy: int) -> object:
            if kernels:
                return kernel.translate(chosen[copy], table, request, PAGE_ENTRIES)
            return [refer(row, copy) for row in range(tokens)]

        def check() -> str | None:
            got = kernel.translate(chosen[0], table, request, PAGE_ENTRIES)
            same = all(torch.equal(got[row].long(), refer(row, 0)) for row in sample(3, tokens))
            return None if same else "translate gives other slots than the page table"

        return TorchCase(run, check if kernels else lambda: None, copies, self.footprint_bytes(point))


class Gather(LaunchedOperation):
    """Selected entries, decoded to BF16 rows."""

    name = "gather"
    about = "selected entries decoded to BF16"
    kernel = "v4kernels.gather"
    group = "tokens"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        return [p for p in token_points(self.name, model_name, axes) if p["tokens"] <= _GATHER_TOKENS]

    def twin(self, point: Point) -> Point:
        return point.with_sizes(tokens=1)

    def work(self, point: Point) -> Work:
        entries = point["tokens"] * model(point.model).index_topk
        history = min(point["tokens"], _REQUESTS) * _HISTORY_ENTRIES
        distinct = int(history * (1 - math.exp(-entries / history)))  # of random draws
        return Work(
            read_bytes=distinct * ENTRY_BYTES[model(point.model).main_format] + 4 * entries,
            write_bytes=entries * HEAD_DIM * 2,
            fp32_ops=entries * HEAD_DIM * 2,
        )

    def footprint_bytes(self, point: Point) -> int:
        return self.work(point).hbm_bytes

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        from v4kernels import gather as kernel
        from v4kernels import layouts

        shape = model(point.model)
        fmt, entries = layouts.entry_format(shape.main_format), point["tokens"] * shape.index_topk
        histories = min(point["tokens"] * copies, _REQUESTS)
        pages = histories * _HISTORY_ENTRIES // PAGE_ENTRIES
        data = filled_cache(fmt, pages, PAGE_ENTRIES, torch_device)
        cache = layouts.PagedCache(data, fmt, PAGE_ENTRIES)
        slots = [
            torch.randint(0, pages * PAGE_ENTRIES, (entries,), dtype=torch.int32, device=torch_device)
            for _ in range(copies)
        ]

        def run(copy: int) -> object:
            return kernel.gather(cache, slots[copy]) if kernels else cache.read(slots[copy])

        def check() -> str | None:
            rows = torch.tensor(sample(64, entries), device=torch_device)
            got = kernel.gather(cache, slots[0])[rows].float()
            same = torch.equal(got, cache.read(slots[0][rows]))  # every stored value is exact in BF16
            return None if same else "gathered entries differ from what is stored"

        return TorchCase(run, check if kernels else lambda: None, copies, self.footprint_bytes(point))
