"""What a run will measure, and how long that takes, before it starts; no torch, any machine.

A point costs its setup (tensors are made anew each pass), its timing (up to the limit of the grid, but at
least the launches that an interval needs), and a compilation per configuration. Launch times are taken as
twice the roofline plus a launch. That is an estimate: kernels that are far from the roofline take longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from v4calib.device import DeviceFacts
from v4calib.grid import Grid, Point
from v4calib.measure import Job
from v4calib.operations import select
from v4calib.operations.base import MeasuredOperation, copies_for
from v4calib.roofline import LAUNCH_US, bound_us, peaks
from v4calib.timing import rounds
from v4sim.model.hardware import gpu

PASSES = 2
_COMPILE_S = 1.5
_START_S = 20.0
_ROOFLINE_TIMES = 2.0
_L2_BYTES = {"hopper": 50 << 20, "blackwell": 126 << 20}
_SMS = {"hopper": 132, "blackwell": 148}
_ARCH = {"hopper": 90, "blackwell": 100}


@dataclass(frozen=True, slots=True)
class Planned:
    """One operation: points that can be measured, held-out ones, seconds, and what is refused."""

    operation: str
    about: str
    points: int
    held_out: int
    seconds: float
    refused: int
    reason: str


def jobs_for(names: list[str], models: Sequence[str], axes: Grid) -> list[Job]:
    """Operations with their points; what belongs to no model is measured once."""
    jobs = []
    for op in select(names):
        points: dict[str, Point] = {}
        for model in models:
            points |= {p.key: p for p in op.points(model, axes)}
        if points:  # V4.1 has no HCA, V4 no candidate pool
            jobs.append(Job(op, tuple(points.values())))
    return jobs


def plan(jobs: Sequence[Job], axes: Grid, facts: DeviceFacts, passes: int = PASSES) -> list[Planned]:
    """Row by row of what `run` does."""
    out = []
    for job in jobs:
        possible = [p for p in job.points if job.operation.refuse(p, facts) is None]
        reasons = [r for p in job.points if (r := job.operation.refuse(p, facts)) is not None]
        seconds = passes * sum(_point_s(job.operation, p, axes, facts) for p in possible)
        if job.operation.compiles and facts.kind == "cuda":
            seconds += _COMPILE_S * len({job.operation.configuration(p) for p in possible})
        out.append(
            Planned(
                job.operation.name,
                job.operation.about,
                len(possible),
                sum(p.held_out for p in possible),
                seconds,
                len(reasons),
                reasons[0] if reasons else "",
            )
        )
    return out


def minutes(planned: Sequence[Planned]) -> float:
    """All of it, with the start."""
    return (_START_S + sum(p.seconds for p in planned)) / 60


def described(name: str, device: str = "cuda") -> DeviceFacts:
    """A GPU that is not here, as far as its description goes: for planning on another machine."""
    spec = gpu(name)
    if device == "cpu":
        return DeviceFacts("cpu", "CPU", name, 0, 0, 0, 0, 1)
    return DeviceFacts(
        kind="cuda",
        name=f"one {name} (not this machine)",
        gpu=name,
        arch=_ARCH[spec.arch],
        memory_bytes=spec.memory_bytes,
        l2_bytes=_L2_BYTES[spec.arch],
        sms=spec.sm_count or _SMS[spec.arch],
        devices=1,
    )


def _point_s(operation: MeasuredOperation, point: Point, axes: Grid, facts: DeviceFacts) -> float:
    rates = peaks(facts)
    if rates is None:
        return 0.4 + 3 * axes.point_s
    _, bound = bound_us(operation.work(point), rates, operation.matrix_format(point), "cold")
    launch_us, footprint = _ROOFLINE_TIMES * bound + LAUNCH_US, operation.footprint_bytes(point)
    copies = copies_for(footprint, facts.l2_bytes, facts.memory_bytes)
    sample_s = copies * rounds(copies, launch_us) * launch_us / 1e6
    needed = (2 * axes.block + axes.min_samples) * sample_s
    variants = 1 if footprint >= facts.l2_bytes else 2
    return operation.setup_s(point) + variants * max(needed, 0.02)
