"""Around the GPU without one: the compiler child, the toolchain, the order of flush, events, launches."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from v4calib.device import EAGER_COLD, EAGER_HOT, GRAPH_COLD, GRAPH_HOT, Variant
from v4calib.devices import gpu_of, refuse_slice, refuse_toolchain
from v4calib.devices.compiler import Compiler
from v4calib.devices.cuda import CudaClock, CudaDevice
from v4calib.errors import CalibError
from v4calib.grid import Point, grid
from v4calib.operations import OPERATIONS
from v4calib.operations.base import L2_TIMES, MAX_COPIES, copies_for
from v4calib.operations.links import BesideCompute
from v4calib.operations.topk import TopK
from v4calib.provenance import commit_of
from v4calib.timing import UNROLL

POINT = Point("topk", "v4-flash", (("batch", 1), ("context", 8192), ("width", 1), ("mix", "equal")))
ANSWERING = """
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    context = request["point"]["sizes"]["context"]
    if context == 1: time.sleep(60)
    if context == 2: sys.exit(139)
    print(json.dumps({"reason": "ptxas said no" if context == 3 else None}), flush=True)
"""


def child(limit_s: float = 10.0) -> Compiler:
    return Compiler(limit_s, [sys.executable, "-c", ANSWERING], start_s=10.0)


def test_a_kernel_that_compiles_and_one_that_does_not() -> None:
    compiler = child()
    try:
        assert compiler.compile("topk", POINT) is None
        assert compiler.compile("topk", POINT.with_sizes(context=3)) == "ptxas said no"
        assert compiler.compile("topk", POINT) is None
    finally:
        compiler.close()


def test_a_compiler_that_hangs_costs_one_row() -> None:
    """triton#10918: FP4 emulation compiled for more than ten minutes. The next kernel gets a new child."""
    compiler = Compiler(0.3, [sys.executable, "-c", ANSWERING], start_s=0.2)
    try:
        assert compiler.compile("topk", POINT.with_sizes(context=1)) == "does not compile within 0.3 s"
        compiler._start_s = 10.0
        assert compiler.compile("topk", POINT) is None
    finally:
        compiler.close()


def test_a_compiler_that_crashes_costs_one_row() -> None:
    compiler = child()
    try:
        assert compiler.compile("topk", POINT.with_sizes(context=2)) == "the compiler ended with code 139"
        assert compiler.compile("topk", POINT) is None
    finally:
        compiler.close()


@pytest.mark.parametrize(
    ("arch", "triton", "word"),
    [
        (100, "3.5.1", "3.6.0"),
        (103, "3.4.0", "sm_103"),
        (100, "3.6.0", None),
        (100, "3.10.0+git", None),
        (90, "3.4.0", None),
        (90, None, "not installed"),
    ],
)
def test_a_triton_without_blackwell_is_one_clear_line(
    arch: int, triton: str | None, word: str | None
) -> None:
    """triton#10331: ptxas for Blackwell comes with 3.6.0."""
    reason = refuse_toolchain(arch, triton)
    if word is None:
        assert reason is None
    else:
        assert reason is not None
        assert word in reason
        assert "\n" not in reason


def test_names_of_drivers_and_of_deployments() -> None:
    assert gpu_of("NVIDIA H200") == "h200"
    assert gpu_of("NVIDIA H200 NVL") == "h200"
    assert gpu_of("NVIDIA GB200") == "gb200"
    assert gpu_of("NVIDIA B200") == "b200"
    assert gpu_of("NVIDIA A100-SXM4-80GB") is None


def test_a_slice_of_a_gpu_is_refused() -> None:
    refuse_slice("NVIDIA H200")
    with pytest.raises(CalibError, match="slice of a GPU"):
        refuse_slice("NVIDIA H200 MIG 1g.18gb")


def test_compute_beside_a_transfer_outlasts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products that end before the transfer does are repeated with more of them, and never counted."""
    clock = BesideCompute()
    taken: list[int] = []

    def once(self: BesideCompute, case: Any) -> tuple[float, float]:
        taken.append(self.products)
        return 1000.0 + self.products, 5.0 * self.products

    monkeypatch.setattr(BesideCompute, "_once", once)
    times = clock.sample_us(Case(FakeTorch(), 1, 1), EAGER_COLD, 3)
    assert len(times) == 3
    assert all(us <= 5.0 * (us - 1000.0) for us in times)
    assert taken[0] == 8
    assert len(taken) > 4


def test_copies_cover_eight_l2_sizes_or_the_clock_flushes() -> None:
    l2 = 50 << 20
    assert copies_for(1 << 30, l2, 141 << 30) == 1, "one set is more than eight of them"
    assert copies_for(100 << 20, l2, 141 << 30) * (100 << 20) >= L2_TIMES * l2
    assert copies_for(4096, l2, 141 << 30) == UNROLL, "no number of them would do without a flush"
    assert copies_for(L2_TIMES * l2 // MAX_COPIES, l2, 141 << 30) == MAX_COPIES
    assert copies_for(100 << 30, l2, 141 << 30) == 1


class FakeTorch(types.ModuleType):
    """Records what a clock asks of torch, in order."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.log = log = []  # type: list[str]
        self.uint8 = "uint8"
        self.capturing = False
        self.elapsed_ms = 0.01
        outer = self

        class Event:
            def __init__(self, **options: Any) -> None:
                log.append("event")

            def record(self) -> None:
                log.append("record")

            def synchronize(self) -> None:
                """The host waits."""

            def elapsed_time(self, other: Any) -> float:
                return outer.elapsed_ms

        class Graph:
            def replay(self) -> None:
                log.append("replay")

        class Context:
            def __init__(self, captures: bool) -> None:
                self.captures = captures

            def __enter__(self) -> None:
                outer.capturing = self.captures

            def __exit__(self, *error: object) -> None:
                outer.capturing = False

        stream = types.SimpleNamespace(wait_stream=lambda other: None)
        self.cuda = types.SimpleNamespace(
            Event=Event,
            CUDAGraph=Graph,
            Stream=lambda: stream,
            current_stream=lambda: stream,
            stream=lambda s: Context(False),
            graph=lambda g: Context(True),
            synchronize=lambda: None,
        )

    def empty(self, size: int, **options: Any) -> Any:
        return types.SimpleNamespace(fill_=lambda value: self.log.append(f"flush {size}"))


class Case:
    """Launches that are logged; `copies` sets of `copy_bytes`."""

    clock = None

    def __init__(self, torch: FakeTorch, copies: int, copy_bytes: int) -> None:
        self.torch, self.copies, self.copy_bytes = torch, copies, copy_bytes

    def launch(self, copy: int) -> None:
        self.torch.log.append(f"{'captured' if self.torch.capturing else 'launch'} {copy}")


L2 = 1 << 20
Timed = Callable[[int, int, Variant], tuple[list[str], list[float]]]


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Timed:
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)

    def go(copies: int, copy_bytes: int, variant: Variant) -> tuple[list[str], list[float]]:
        clock, case = CudaClock(L2), Case(torch, copies, copy_bytes)
        clock.sample_us(case, variant, 1)  # captures
        torch.log.clear()
        times = clock.sample_us(case, variant, 2)
        return torch.log, times

    return go


def between_events(log: list[str]) -> list[str]:
    inside, out = False, []
    for entry in log:
        if entry == "record":
            inside = not inside
        elif inside:
            out.append(entry)
    return out


def test_a_flush_is_before_the_events_and_never_between(timed: Timed) -> None:
    """triton#8384, tritonbench#519: no flush under graphs, and then a flush that was timed."""
    log, times = timed(UNROLL, 4096, GRAPH_COLD)
    assert times == [pytest.approx(10 / UNROLL)] * 2, "every copy once after a flush, a mean of them"
    assert f"flush {L2_TIMES * L2}" in log
    assert between_events(log) == ["replay", "replay"]
    assert log.index(f"flush {L2_TIMES * L2}") < log.index("record")


def test_enough_copies_need_no_flush(timed: Timed) -> None:
    log, times = timed(9, L2, GRAPH_COLD)
    assert not [entry for entry in log if entry.startswith("flush")]
    assert between_events(log) == ["replay", "replay"]
    assert times == [pytest.approx(10 / 27)] * 2, "three rounds over nine copies in a graph, a mean of 27"


def test_hot_is_one_copy_and_eager_has_no_graph(timed: Timed) -> None:
    log, _ = timed(9, L2, GRAPH_HOT)
    assert not [entry for entry in log if entry.startswith("flush")]
    log, times = timed(9, L2, EAGER_HOT)
    assert set(between_events(log)) == {"launch 0"}
    assert "replay" not in log
    assert len(times) == 2


def test_every_copy_is_in_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    CudaClock(L2).sample_us(Case(torch, 9, L2), GRAPH_COLD, 1)
    captured = [entry for entry in torch.log if entry.startswith("captured")]
    assert captured == [f"captured {i}" for i in [*range(9)] * 3]


def test_a_long_launch_is_not_repeated_for_one_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefill scan of 46 ms twenty times over would be a second a sample."""
    torch = FakeTorch()
    torch.elapsed_ms = 46.0
    monkeypatch.setitem(sys.modules, "torch", torch)
    CudaClock(L2).sample_us(Case(torch, 2, 8 * L2), GRAPH_COLD, 1)
    captured = [entry for entry in torch.log if entry.startswith("captured")]
    assert captured == ["captured 0", "captured 1"], "each copy once"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CudaDevice]:
    """A device whose torch is made up: a whole H200 with 100 GB free."""

    def make(name: str = "NVIDIA H200", cached: int = 0) -> CudaDevice:
        torch = FakeTorch()
        properties = types.SimpleNamespace(
            major=9,
            minor=0,
            total_memory=141 << 30,
            L2_cache_size=60 << 20,
            multi_processor_count=132,
            uuid="4",
        )
        for attribute, value in {
            "is_available": lambda: True,
            "get_device_properties": lambda i: properties,
            "get_device_name": lambda i: name,
            "device_count": lambda: 1,
            "mem_get_info": lambda: (100 << 30, 141 << 30),
            "memory_reserved": lambda: cached,
            "memory_allocated": lambda: 0,
            "empty_cache": lambda: torch.log.append("emptied"),
        }.items():
            setattr(torch.cuda, attribute, value)
        torch.version = types.SimpleNamespace(cuda="13.0")  # type: ignore[attr-defined]  # a made-up module
        monkeypatch.setitem(sys.modules, "torch", torch)
        return CudaDevice(None, {"triton": "3.6.0"}, 10.0)

    return make


def test_facts_of_a_device(cuda: Callable[..., CudaDevice]) -> None:
    device = cuda()
    try:
        facts = device.facts
        assert (facts.gpu, facts.arch, facts.sms, facts.l2_bytes) == ("h200", 90, 132, 60 << 20)
        assert facts.libraries == {"triton": "3.6.0", "cuda": "13.0"}
        assert not device.alive(), "this torch answers nothing"
    finally:
        device.close()
    with pytest.raises(CalibError, match="slice of a GPU"):
        cuda("NVIDIA H200 MIG 1g.18gb")


def test_a_case_is_built_with_the_memory_that_there_is(
    cuda: Callable[..., CudaDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that torch keeps of earlier cases counts as free, and is given back where it is needed."""
    built: list[int] = []

    def build(self: TopK, point: Point, where: str, copies: int, kernels: bool) -> str:
        built.append(copies)
        assert (where, kernels) == ("cuda", True)
        return "case"

    monkeypatch.setattr(TopK, "build", build)
    device, operation = cuda(cached=20 << 30), TopK()
    try:
        device.case(operation, POINT)
        monkeypatch.setattr(TopK, "footprint_bytes", lambda self, point: 60 << 30)
        device.case(operation, POINT)
    finally:
        device.close()
    assert built == [UNROLL, 1]
    assert device._torch.log.count("emptied") == 1


def test_variants_of_operations(cuda: Callable[..., CudaDevice]) -> None:
    device = cuda()
    try:
        shown = {
            name: [
                v.label
                for v in device.variants(OPERATIONS[name], OPERATIONS[name].points("v4-flash", axes)[0])
            ]
            for axes in (grid("quick"),)
            for name in ("topk", "host_link", "collective", "copy")
        }
    finally:
        device.close()
    assert shown == {
        "topk": ["graph/cold", "graph/hot", "eager/hot"],
        "host_link": ["eager/cold"],
        "collective": ["graph/hot", "eager/hot"],
        "copy": ["graph/cold"],
    }


def test_no_commit_outside_a_checkout(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
    assert commit_of(tmp_path / "nothing") is None
