"""Exact top-k over the logits of a decode batch, and of a prefill chunk.

Scores are normal, not tied: tied scores make published rows 50 us too slow (facts: they are the dummy scores
of a benchmark). Counts are the kernel's own: each logit is read twice. Contexts that hold no more entries
than top-k are left out, nothing is selected there. Ratios as in `index_scan`: up to 1,048,576 logits a row.
"""

from __future__ import annotations

from collections.abc import Callable

from v4calib.grid import Grid, Point, chunk_points, contexts_of, decode_points
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.operations.index_scan import TABLE_RATIO, decode_ratio
from v4calib.operations.tensors import sample
from v4calib.roofline import Work
from v4kernels.shapes import model


def topk_work(lengths: list[int], k: int) -> Work:
    return Work(read_bytes=8 * sum(lengths), write_bytes=4 * k * len(lengths), fp32_ops=2 * 5 * sum(lengths))


class TopK(LaunchedOperation):
    """Decode batches."""

    name = "topk"
    about = "exact top-k of a decode batch"
    kernel = "v4kernels.topk"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        start = decode_ratio(model_name) * model(model_name).index_topk
        points = decode_points(self.name, model_name, axes)
        return [p for p in points if p["context"] > start]

    def lengths(self, point: Point) -> list[int]:
        width, ratio = point["width"], decode_ratio(point.model)
        return [(c - width + j + 1) // ratio for c in contexts_of(point) for j in range(width)]

    def work(self, point: Point) -> Work:
        return topk_work(self.lengths(point), model(point.model).index_topk)

    def footprint_bytes(self, point: Point) -> int:
        return 4 * sum(self.lengths(point))

    def twin(self, point: Point) -> Point:
        return point.with_sizes(batch=1, context=8192, mix="equal")

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        lengths = self.lengths(point)
        return _case(point.model, lengths, torch_device, copies, kernels, self.footprint_bytes(point))


class TopKPrefill(LaunchedOperation):
    """A chunk of new tokens on a past."""

    name = "topk_prefill"
    about = "exact top-k of a prefill chunk"
    kernel = "v4kernels.topk"
    group = "prefill"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        return chunk_points(self.name, model_name, axes)

    def lengths(self, point: Point) -> list[int]:
        return [max((point["past"] + i + 1) // TABLE_RATIO, 1) for i in range(point["new"])]

    def work(self, point: Point) -> Work:
        return topk_work(self.lengths(point), model(point.model).index_topk)

    def footprint_bytes(self, point: Point) -> int:
        return 4 * sum(self.lengths(point))

    def twin(self, point: Point) -> Point:
        return point.with_sizes(new=min(point["new"], 16), past=8192)

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        lengths = self.lengths(point)
        return _case(point.model, lengths, torch_device, copies, kernels, self.footprint_bytes(point))


def _case(
    name: str, lengths: list[int], device: str, copies: int, kernels: bool, copy_bytes: int
) -> TorchCase:
    import torch

    from v4kernels import topk as kernel
    from v4kernels.reference import topk as reference

    k, rows, columns = model(name).index_topk, len(lengths), max(lengths)
    logits = torch.randn(copies, rows, columns, device=device)
    counts = torch.tensor(lengths, dtype=torch.int32, device=device)
    launch: Callable[[int], object]
    if kernels:

        def launch(copy: int) -> object:
            return kernel.topk(logits[copy], counts, k)
    else:

        def launch(copy: int) -> object:
            return reference.topk(logits[copy], counts, k)

    def check() -> str | None:
        taken = sample(4, rows)
        got = kernel.topk(logits[0], counts, k)[torch.tensor(taken, device=device)].cpu()
        want = reference.topk(logits[0, torch.tensor(taken, device=device)], counts[taken], k)
        for row, expected in zip(got, want, strict=True):
            if sorted(int(c) for c in row if c >= 0) != expected:
                return "topk selects other columns than its reference"
        return None

    return TorchCase(launch, check if kernels else lambda: None, copies, copy_bytes)
