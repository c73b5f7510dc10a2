"""An NVIDIA GPU through torch: CUDA events around graph replays and eager launches.

graph/cold   a captured graph runs over all copies of the tensors, which together are more than eight L2
             sizes, so none finds its own bytes; where so many copies cannot be had, a flush of that size
             runs before each sample, outside the two events, and the sample goes through the copies once.
graph/hot    a graph of launches on one copy.
eager/hot    launches one after another without a graph: what a launch costs shows where the kernel is short.

A flush or a copy is never inside the timed region. Times are of one launch (the mean over a graph).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from v4calib.device import EAGER_COLD, EAGER_HOT, GRAPH_COLD, GRAPH_HOT, Case, Device, DeviceFacts, Variant
from v4calib.devices.compiler import Compiler
from v4calib.devices.ranks import Ranks
from v4calib.errors import CalibError
from v4calib.grid import Point
from v4calib.nvml import Sensors, open_nvml
from v4calib.operations.base import L2_TIMES, LaunchedOperation, copies_for
from v4calib.timing import rounds

if TYPE_CHECKING:
    from v4calib.operations.base import MeasuredOperation

_EAGER_BELOW_BYTES = 1 << 20  # launch cost shows in small launches only


class CudaClock:
    """Times a case on the current device."""

    def __init__(self, l2_bytes: int) -> None:
        import torch

        self._torch = torch
        self._l2_bytes = l2_bytes
        self._flush = torch.empty(L2_TIMES * l2_bytes, dtype=torch.uint8, device="cuda")
        self._case: Case | None = None
        self._one_us: float | None = None  # a rough time of one launch
        self._graphs: dict[str, tuple[Any, int]] = {}

    def sample_us(self, case: Case, variant: Variant, count: int) -> list[float]:
        if case is not self._case:
            self._case, self._graphs, self._one_us = case, {}, None
        rotates = case.copies * case.copy_bytes >= L2_TIMES * self._l2_bytes
        if variant.l2 == "cold" and not rotates:
            launch, launches = self._launch(case, variant, list(range(case.copies)))
            return [self._between(launch, launches, flush=True) for _ in range(count)]
        order = list(range(case.copies)) if variant.l2 == "cold" else [0]
        order *= self._rounds(case, len(order))
        launch, launches = self._launch(case, variant, order)
        return [self._between(launch, launches, flush=False) for _ in range(count)]

    def _rounds(self, case: Case, copies: int) -> int:
        if self._one_us is None:
            case.launch(0)  # what is made at the first launch is not timed
            self._one_us = self._between(lambda: case.launch(0), 1, flush=False)
        return rounds(copies, self._one_us)

    def _launch(self, case: Case, variant: Variant, order: list[int]) -> tuple[Callable[[], Any], int]:
        if variant.mode == "eager":

            def eager() -> None:
                for copy in order:
                    case.launch(copy)

            return eager, len(order)
        key = f"{variant.label} {len(order)}"
        if key not in self._graphs:
            self._graphs[key] = self._capture(case, order), len(order)
        graph, launches = self._graphs[key]
        return graph.replay, launches

    def _capture(self, case: Case, order: list[int]) -> Any:
        torch = self._torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # lazy initialisation may not happen inside a capture
            for copy in order[:2]:
                case.launch(copy)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for copy in order:
                case.launch(copy)
        return graph

    def _between(self, launch: Callable[[], Any], launches: int, flush: bool) -> float:
        torch = self._torch
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if flush:
            self._flush.fill_(1)  # the device is busy with it while the host queues what is timed
        begin.record()
        launch()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / launches

    def forget(self) -> None:
        """Let go of the graphs of a finished case, and of the memory they hold."""
        self._case, self._graphs, self._one_us = None, {}, None


class CudaDevice(Device):
    """The first visible GPU."""

    def __init__(self, gpu: str | None, libraries: Mapping[str, str], compile_s: float) -> None:
        import torch

        from v4calib.devices import gpu_of, refuse_slice, refuse_toolchain

        if not torch.cuda.is_available():
            raise CalibError(
                "no CUDA device is visible here: run on a GPU node (`v4calib doctor` says what is "
                "missing), or try the chain with --device cpu."
            )
        found = torch.cuda.get_device_properties(0)
        name = torch.cuda.get_device_name(0)
        refuse_slice(name)
        arch = found.major * 10 + found.minor
        known = gpu or gpu_of(name)
        if known is None:
            raise CalibError(f"{name} is no GPU that v4sim describes: say with --gpu which one it is like.")
        reason = refuse_toolchain(arch, libraries.get("triton"))
        if reason:
            raise CalibError(reason)
        self._torch = torch
        uuid = getattr(found, "uuid", None)
        self._nvml = open_nvml(None if uuid is None else f"GPU-{uuid}")
        sensors = self._nvml()
        self.facts = DeviceFacts(
            kind="cuda",
            name=name,
            gpu=known,
            arch=arch,
            memory_bytes=int(found.total_memory),
            l2_bytes=int(found.L2_cache_size),
            sms=int(found.multi_processor_count),
            devices=int(torch.cuda.device_count()),
            driver=sensors.values["driver"],
            libraries=dict(libraries) | {"cuda": str(torch.version.cuda)},
        )
        self.clock = CudaClock(self.facts.l2_bytes)
        self._compiler = Compiler(compile_s)
        self._ranks = Ranks("cuda")

    def variants(self, operation: MeasuredOperation, point: Point) -> tuple[Variant, ...]:
        size = operation.footprint_bytes(point)
        if operation.group == "links":
            return (EAGER_COLD,)
        if operation.group == "ranks":
            return GRAPH_HOT, EAGER_HOT
        out = [GRAPH_COLD]
        if size < self.facts.l2_bytes and not point.held_out:
            out.append(GRAPH_HOT)
            if size < _EAGER_BELOW_BYTES:
                out.append(EAGER_HOT)
        return tuple(out)

    def compile(self, operation: MeasuredOperation, point: Point) -> str | None:
        return self._compiler.compile(operation.name, operation.twin(point)) if operation.compiles else None

    def case(self, operation: MeasuredOperation, point: Point) -> Case:
        self.clock.forget()
        if not isinstance(operation, LaunchedOperation):
            return self._ranks.case(point)
        cuda = self._torch.cuda
        free, size = cuda.mem_get_info()[0], operation.footprint_bytes(point)
        cached = cuda.memory_reserved() - cuda.memory_allocated()  # by torch, of cases before this one
        copies = copies_for(size, self.facts.l2_bytes, free + cached)
        if copies * size > free / 2:
            cuda.empty_cache()
        return operation.build(point, "cuda", copies, kernels=True)

    def sensors(self) -> Sensors:
        return self._nvml()

    def alive(self) -> bool:
        try:
            self._torch.cuda.synchronize()
            return bool(self._torch.ones(1, device="cuda").item() == 1)
        except Exception:  # torch raises several kinds; any of them is the answer
            return False

    def close(self) -> None:
        self._compiler.close()
        self._ranks.close()
