"""What the calibrator knows of one operation: which points, how much work, and how to build a case.

A subclass is one operation. Points, work and footprint are plain arithmetic (a plan is made on a machine
without torch); `build` is the only place that imports torch and the kernels. Where the device is a CPU
the torch reference is what is timed. `verify` of a case compares a sample of the outputs of exactly the
tensors that are timed with the reference on them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from v4calib.device import Clock, DeviceFacts
from v4calib.grid import Grid, Point
from v4calib.roofline import Work
from v4calib.timing import UNROLL

MAX_COPIES = 64
L2_TIMES = 8  # distinct bytes between two launches on the same tensors, in L2 sizes


@dataclass
class TorchCase:
    """A case made of closures over tensors."""

    run: Callable[[int], Any]
    check: Callable[[], str | None]
    copies: int = 1
    copy_bytes: int = 0
    clock: Clock | None = None

    def launch(self, copy: int) -> Any:
        return self.run(copy)

    def verify(self) -> str | None:
        return self.check()

    def close(self) -> None:
        """Drop the tensors before the next point makes its own."""
        del self.run, self.check


class MeasuredOperation(ABC):
    """One operation that can be measured."""

    name: ClassVar[str]
    about: ClassVar[str]
    kernel: ClassVar[str]  # what is launched on a GPU
    group: ClassVar[str] = "decode"  # decode | prefill | tokens | links | ranks | ceiling: how it is timed
    needs_devices: ClassVar[int] = 1
    cpu: ClassVar[bool] = True  # has a meaning on a CPU
    compiles: ClassVar[bool] = True  # a Triton kernel, compiled in a child first

    @abstractmethod
    def points(self, model: str, axes: Grid) -> list[Point]:
        """What to measure of a model."""

    @abstractmethod
    def work(self, point: Point) -> Work:
        """Lower-bound counts of one launch."""

    @abstractmethod
    def footprint_bytes(self, point: Point) -> int:
        """Bytes that one launch touches and another one may not."""

    def matrix_format(self, point: Point) -> str:
        """The format that the matrix leg is held against."""
        return "bf16"

    def refuse(self, point: Point, facts: DeviceFacts) -> str | None:
        """Why this device cannot do it."""
        if facts.kind == "cpu" and not self.cpu:
            return "has no meaning on a CPU"
        if facts.devices < self.needs_devices:
            return f"needs {self.needs_devices} GPUs, this node has {facts.devices}"
        return None

    def configuration(self, point: Point) -> str:
        """What makes the compiler produce another binary; points that share it compile once."""
        return point.model

    def twin(self, point: Point) -> Point:
        """A small point of the same configuration, for the child that compiles."""
        return point

    def setup_s(self, point: Point) -> float:
        """Seconds to build and verify a case, for the plan."""
        return 0.3 + 3.0 * self.footprint_bytes(point) / 200e9


class LaunchedOperation(MeasuredOperation):
    """An operation that one process launches on one device."""

    @abstractmethod
    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        """Tensors and launches; `kernels`: the Triton launcher, else its reference."""


def copies_for(footprint_bytes: int, l2_bytes: int, memory_bytes: int) -> int:
    """Distinct tensor sets that keep the L2 cold by rotation.

    Where that takes too many, as many as one sample goes through after a flush.
    """
    wanted = math.ceil(L2_TIMES * l2_bytes / max(footprint_bytes, 1))
    fitting = int(0.4 * memory_bytes / max(footprint_bytes, 1))
    return wanted if wanted <= min(MAX_COPIES, fitting) else max(1, min(UNROLL, fitting))
