"""What a device is to the runner: facts, sensors, cases that can be launched, and a clock for them.

Everything that decides (order, repeats, what is rejected) works on these protocols, so it is tested with a
device of made-up timings; torch is behind `devices.cuda` and `devices.cpu` only.
Units: microseconds, bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from v4calib.grid import Point

if TYPE_CHECKING:
    from v4calib.nvml import Sensors
    from v4calib.operations.base import MeasuredOperation


class Variant(NamedTuple):
    """How a time was taken: `graph` has no launch cost in it, `eager` has; L2 `cold` or `hot`."""

    mode: str
    l2: str

    @property
    def label(self) -> str:
        return f"{self.mode}/{self.l2}"

    @classmethod
    def of(cls, label: str) -> Variant:
        return cls(*label.split("/"))


GRAPH_COLD = Variant("graph", "cold")
GRAPH_HOT = Variant("graph", "hot")
EAGER_COLD = Variant("eager", "cold")
EAGER_HOT = Variant("eager", "hot")
PREFERRED = (GRAPH_COLD, EAGER_COLD, GRAPH_HOT, EAGER_HOT)  # what a fit takes of a point


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What does not change while a run lasts. `gpu` is the name v4sim has for it."""

    kind: str  # cuda | cpu
    name: str
    gpu: str
    arch: int  # compute capability, 90 for sm_90; 0 on a CPU
    memory_bytes: int
    l2_bytes: int
    sms: int
    devices: int
    driver: str | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {s: dict(v) if isinstance(v := getattr(self, s), Mapping) else v for s in self.__slots__}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> DeviceFacts:
        return cls(**data)


class Case(Protocol):
    """One point with its tensors, `copies` times over so that a launch finds the L2 cold."""

    copies: int
    copy_bytes: int

    @property
    def clock(self) -> Clock | None:
        """Its own, where a launch is more than this process can time."""
        ...

    def launch(self, copy: int) -> Any: ...

    def verify(self) -> str | None:
        """None if the kernel agrees with its reference on this device, else what is wrong."""
        ...

    def close(self) -> None: ...


class Clock(Protocol):
    """Times launches of a case."""

    def sample_us(self, case: Case, variant: Variant, count: int) -> list[float]:
        """`count` durations of one launch each (or means over an unrolled graph)."""
        ...


class Device(Protocol):
    """Where cases run."""

    facts: DeviceFacts
    clock: Clock

    def variants(self, operation: MeasuredOperation, point: Point) -> tuple[Variant, ...]:
        """The ways in which this point is timed here."""
        ...

    def compile(self, operation: MeasuredOperation, point: Point) -> str | None:
        """Compile where a hang or crash harms nobody; the reason why it cannot be."""
        ...

    def case(self, operation: MeasuredOperation, point: Point) -> Case: ...

    def sensors(self) -> Sensors: ...

    def alive(self) -> bool:
        """Whether it still answers: an illegal access ends a CUDA context for good."""
        ...

    def close(self) -> None: ...
