"""The published tables where this machine has them, and a device of made-up timings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from v4calib.aic.source import Source
from v4calib.device import EAGER_HOT, GRAPH_COLD, GRAPH_HOT, DeviceFacts, Variant
from v4calib.errors import CalibError
from v4calib.grid import Grid, Point, contexts_of
from v4calib.journal import Header, Journal
from v4calib.measure import run
from v4calib.nvml import FIELDS, Sensors
from v4calib.operations.base import MeasuredOperation
from v4calib.operations.index_scan import decode_ratio
from v4calib.plan import jobs_for

WHEEL = "V4CALIB_AICONFIGURATOR_WHEEL"


@pytest.fixture(scope="session")
def published() -> Iterator[Source]:
    wheel = os.environ.get(WHEEL)
    try:
        source = Source(Path(wheel) if wheel else None)
    except CalibError as missing:
        pytest.skip(f"{missing} (or name the wheel in {WHEEL})")
    with source:
        yield source


@pytest.fixture(scope="session")
def wheel_option() -> list[str]:
    wheel = os.environ.get(WHEEL)
    return ["--wheel", wheel] if wheel else []


FACTS = DeviceFacts(
    "cuda",
    "NVIDIA H200",
    "h200",
    90,
    141 << 30,
    50 << 20,
    132,
    1,
    "580.1",
    {"torch": "2.11.0", "triton": "3.6.0"},
)

# The world that a fit must find again: microseconds.
SCAN_FLOOR, SCAN_KEY, SCAN_PAIR = 4.0, 3.4e-5, 1.3e-5
TOPK_ONE, TOPK_TOKEN, TOPK_PAIR = 3.0, 0.004, 1.2e-6
LINK_START, LINK_COPY, LINK_GATHER = 8.0, 1 / 55e3, 1 / 35e3
HCA_SHORT, HCA_COMPUTE, HCA_KEY = 12.0, 2.5e-6, 1.2e-6


def synthetic_us(operation: MeasuredOperation, point: Point) -> float:
    """What a launch of this point takes, cold, on the made-up device."""
    if point.operation == "index_scan":
        entries = sum(c // decode_ratio(point.model) for c in contexts_of(point))
        if point["context"] == 256:
            return SCAN_FLOOR
        return SCAN_FLOOR + max(SCAN_KEY * entries, SCAN_PAIR * entries * point["width"])
    if point.operation == "candidate_scan":
        return SCAN_FLOOR + max(SCAN_KEY, SCAN_PAIR) * 16_384 * point["tokens"]
    if point.operation == "topk":
        contexts = contexts_of(point)
        one = TOPK_ONE + 1e-5 * max(contexts)
        tokens = point["width"] * len(contexts)
        return max(one, TOPK_TOKEN * tokens + TOPK_PAIR * point["width"] * sum(contexts))
    if point.operation == "topk_prefill":
        seen = point["past"] + point["new"] / 2
        return 3.0 + point["new"] * (TOPK_TOKEN + TOPK_PAIR * seen)
    if point.operation == "hca_attention":
        total = sum(contexts_of(point))
        return HCA_SHORT + max(
            2e-5 * max(contexts_of(point)), HCA_COMPUTE * total * point["width"], HCA_KEY * total
        )
    if point.operation == "index_scan_prefill":
        return SCAN_FLOOR + SCAN_PAIR * point["new"] * (point["past"] + point["new"] / 2) / 4
    if point.operation == "host_link":
        rate = LINK_GATHER if point.word("way") == "gather" else LINK_COPY
        return LINK_START + operation.work(point).link_bytes * rate * (
            1 + (point.word("beside") == "compute")
        )
    if point.operation == "collective":
        return 10.0 + operation.work(point).nvlink_bytes / 3e5
    if point.operation == "empty_launch":
        return 2.0
    if point.operation == "sparse_attention":
        return HCA_SHORT + 0.04 * point["tokens"] * (1 + point["selected"] / 128)
    return 5.0 + operation.work(point).hbm_bytes / 4.0e6 + operation.work(point).matrix_flops / 6.0e8


@dataclass
class FakeCase:
    us: float
    wrong: str | None = None
    fails: bool = False
    copies: int = 1
    copy_bytes: int = 0
    clock: Any = None
    launches: list[int] = field(default_factory=list)

    def launch(self, copy: int) -> None:
        self.launches.append(copy)

    def verify(self) -> str | None:
        if self.fails:
            raise MemoryError("out of memory on the made-up device")
        return self.wrong

    def close(self) -> None:
        self.us = float("nan")  # a closed case must not be timed


@dataclass
class FakeClock:
    """Durations by count of samples: `shape(n)` multiplies the n-th one."""

    shape: Callable[[int], float] = lambda n: 1.0
    taken: int = 0
    interrupt_after: int | None = None

    def sample_us(self, case: FakeCase, variant: Variant, count: int) -> list[float]:
        out = []
        for _ in range(count):
            if self.interrupt_after is not None and self.taken >= self.interrupt_after:
                raise KeyboardInterrupt
            self.taken += 1
            extra = 5.0 if variant.mode == "eager" else 0.0
            out.append((case.us + extra) * self.shape(self.taken))
        return out


@dataclass
class FakeDevice:
    facts: DeviceFacts = FACTS
    clock: Any = field(default_factory=FakeClock)
    throttle: Callable[[int], tuple[str, ...]] = lambda n: ()
    wrong: dict[str, str] = field(default_factory=dict)  # operation -> what is wrong
    hangs: dict[str, str] = field(default_factory=dict)  # operation -> why it does not compile
    scale: dict[str, float] = field(default_factory=dict)  # operation -> times too slow
    failing: set[str] = field(default_factory=set)
    fragile: bool = False  # does not outlive a failure
    read: int = 0
    compiled: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)

    def variants(self, operation: MeasuredOperation, point: Point) -> tuple[Variant, ...]:
        return (GRAPH_COLD, GRAPH_HOT, EAGER_HOT) if point.operation == "empty_launch" else (GRAPH_COLD,)

    def compile(self, operation: MeasuredOperation, point: Point) -> str | None:
        self.compiled.append(f"{operation.name} {operation.configuration(point)}")
        return self.hangs.get(operation.name)

    def case(self, operation: MeasuredOperation, point: Point) -> FakeCase:
        self.opened.append(point.key)
        us = synthetic_us(operation, point) * self.scale.get(operation.name, 1.0)
        return FakeCase(us, self.wrong.get(operation.name), operation.name in self.failing)

    def sensors(self) -> Sensors:
        self.read += 1
        values = dict.fromkeys(FIELDS) | {"sm_clock_mhz": 1980, "throttle_reasons": self.throttle(self.read)}
        return Sensors(values, {name: "NotSupported" for name, value in values.items() if value is None})

    def alive(self) -> bool:
        return not self.fragile

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture(scope="session")
def fake_device() -> Callable[..., FakeDevice]:
    """Make a device; `shape` is the clock's."""

    def make(shape: Callable[[int], float] | None = None, **options: Any) -> FakeDevice:
        device = FakeDevice(**options)
        if shape is not None:
            device.clock = FakeClock(shape)
        return device

    return make


@pytest.fixture(scope="session")
def tiny_grid() -> Grid:
    """Large enough to fit everything, small enough to run in a moment."""
    return Grid(
        name="quick",
        batches=(1, 8, 32),
        contexts=(256, 65_536, 262_144, 524_288, 1_048_576),
        widths=(1, 4, 8),
        new=(1, 512, 8192),
        past=(0, 8192, 131_072, 1_000_000),
        tokens=(1, 8, 32, 128, 512, 8192),
        tps=(1,),
        link_bytes=(1 << 20, 1 << 24, 1 << 28),
        message_bytes=(1 << 13, 1 << 16, 1 << 18, 1 << 26),
        max_batch_context=32 << 20,
        point_s=1.0,
        ci_goal=0.02,
    )


@pytest.fixture(scope="session")
def measure_all(tmp_path_factory: pytest.TempPathFactory, tiny_grid: Grid) -> Callable[..., Journal]:
    """A whole run on a made-up device, in a new folder or the one given; returns the journal."""

    def go(
        device: FakeDevice,
        ops: list[str] | None = None,
        *,
        folder: Path | None = None,
        resume: bool = False,
        seed: int = 0,
        model: str = "v4-flash",
    ) -> Journal:
        jobs = jobs_for(ops or [], [model], tiny_grid)
        header = Header(
            facts=device.facts,
            grid=tiny_grid.name,
            operations=tuple(job.operation.name for job in jobs),
            models=(model,),
            seed=seed,
            passes=2,
            started="2026-11-30T12:00Z",
            commit="abc1234",
        )
        journal = Journal(
            (folder or tmp_path_factory.mktemp("run")) / "run.rows.jsonl", header, resume=resume
        )
        with journal:
            run(device, jobs, journal, tiny_grid.budget)
        return journal

    return go
