"""What the device can do at best, measured in the same run: copy, matrix product, an empty launch.

A fraction of a ceiling in a report is a fraction of these. The copy moves 4 GB and counts bytes read and
written; the product is cuBLAS on 8192 x 8192 x 8192 BF16 of random data (zeros run faster). The empty launch
is a one-element write: its graph time is device time, what eager adds is the cost of a launch.
"""

from __future__ import annotations

from v4calib.grid import Grid, Point
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.roofline import Work


class Copy(LaunchedOperation):
    """Device to device."""

    name = "copy"
    about = "ceiling: copy bandwidth"
    kernel = "torch copy"
    group = "ceiling"
    compiles = False

    def points(self, model: str, axes: Grid) -> list[Point]:
        sizes = (1 << 27,) if axes.name == "cpu" else (1 << 30, 1 << 32)
        return [Point(self.name, "any", (("bytes", size),)) for size in sizes]

    def work(self, point: Point) -> Work:
        return Work(read_bytes=point["bytes"], write_bytes=point["bytes"])

    def footprint_bytes(self, point: Point) -> int:
        return 2 * point["bytes"]

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        source = torch.randint(0, 255, (point["bytes"],), dtype=torch.uint8, device=torch_device)
        target = torch.empty_like(source)

        def check() -> str | None:
            target.copy_(source)
            return None if torch.equal(target, source) else "the copy differs from its source"

        return TorchCase(lambda copy: target.copy_(source), check, 1, self.footprint_bytes(point))


class MatrixProduct(LaunchedOperation):
    """A large BF16 product."""

    name = "matmul"
    about = "ceiling: BF16 matrix rate"
    kernel = "cuBLAS through torch"
    group = "ceiling"
    compiles = False

    def points(self, model: str, axes: Grid) -> list[Point]:
        return [Point(self.name, "any", (("side", 512 if axes.name == "cpu" else 8192),))]

    def work(self, point: Point) -> Work:
        n = point["side"]
        return Work(read_bytes=4 * n * n, write_bytes=2 * n * n, matrix_flops=2 * n**3)

    def footprint_bytes(self, point: Point) -> int:
        return self.work(point).hbm_bytes

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        n = point["side"]
        a, b = (torch.randn(n, n, device=torch_device).to(torch.bfloat16) for _ in range(2))
        return TorchCase(lambda copy: a @ b, lambda: None, 1, self.footprint_bytes(point))


class EmptyLaunch(LaunchedOperation):
    """As little as a kernel can do."""

    name = "empty_launch"
    about = "ceiling: what a launch costs by itself"
    kernel = "torch fill of one element"
    group = "ceiling"
    cpu = False
    compiles = False

    def points(self, model: str, axes: Grid) -> list[Point]:
        return [Point(self.name, "any", (("elements", 1),))]

    def work(self, point: Point) -> Work:
        return Work(write_bytes=4)

    def footprint_bytes(self, point: Point) -> int:
        return 4

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        one = torch.empty(1, device=torch_device)
        return TorchCase(lambda copy: one.zero_(), lambda: None, 1, 4)
