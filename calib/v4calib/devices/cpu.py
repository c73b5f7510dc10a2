"""A CPU that times the torch references on small shapes: it proves the chain and says nothing about a GPU.

The profile it leads to stands in for a GPU so that it can be replayed, and every number of it says `CPU`.
One way of timing: eager calls, caches as they are, processor time of one thread, so that neighbours on a
shared machine count for little.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from v4calib.device import EAGER_HOT, Case, Device, DeviceFacts, Variant
from v4calib.devices.ranks import Ranks
from v4calib.grid import Point
from v4calib.nvml import Sensors, absent
from v4calib.operations.base import LaunchedOperation

if TYPE_CHECKING:
    from v4calib.operations.base import MeasuredOperation


class CpuClock:
    """Processor time of one call on this thread."""

    def sample_us(self, case: Case, variant: Variant, count: int) -> list[float]:
        out = []
        for _ in range(count):
            begin = time.thread_time_ns()
            case.launch(0)
            out.append((time.thread_time_ns() - begin) / 1e3)
        return out


class CpuDevice(Device):
    """Stands in for the GPU named `gpu`."""

    def __init__(self, gpu: str, libraries: Mapping[str, str]) -> None:
        import torch

        torch.set_num_threads(1)
        name = f"CPU ({platform.machine()}, one thread)"
        self.facts = DeviceFacts("cpu", name, gpu, 0, 0, 0, 0, 1, None, dict(libraries))
        self.clock = CpuClock()
        self._ranks = Ranks("cpu")

    def variants(self, operation: MeasuredOperation, point: Point) -> tuple[Variant, ...]:
        return (EAGER_HOT,)

    def compile(self, operation: MeasuredOperation, point: Point) -> str | None:
        return None

    def case(self, operation: MeasuredOperation, point: Point) -> Case:
        if not isinstance(operation, LaunchedOperation):
            return self._ranks.case(point)
        return operation.build(point, "cpu", 1, kernels=False)

    def sensors(self) -> Sensors:
        return absent("a CPU")

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        self._ranks.close()
