"""What this node can measure, and why not the rest: one line a finding, nothing is launched.

Leaves out whether kernels are right here; a run checks each against its reference before it is timed.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass

from v4calib.device import Device
from v4calib.devices import libraries, open_device
from v4calib.errors import CalibError
from v4calib.grid import grid
from v4calib.operations import OPERATIONS
from v4calib.plan import jobs_for
from v4kernels.shapes import MODELS


@dataclass(frozen=True, slots=True)
class Finding:
    """`ok` None: neither good nor bad."""

    name: str
    ok: bool | None
    words: str


def examine(kind: str, gpu: str | None, models: tuple[str, ...]) -> list[Finding]:
    """Everything that decides what a run can do here."""
    found = [Finding("python", True, sys.version.split()[0])]
    versions = libraries()
    for name, module in (("torch", "torch"), ("triton", "triton"), ("nvidia-ml-py", "pynvml")):
        there = importlib.util.find_spec(module) is not None
        words = versions.get(name, "installed") if there else "not installed: pip install 'v4sim[gpu]'"
        found.append(Finding(name, there, words))
    try:
        device = open_device(kind, gpu)
    except CalibError as error:
        return [*found, Finding("device", False, str(error))]
    try:
        return [*found, *_device(device), *_operations(device, models)]
    finally:
        device.close()


def _device(device: Device) -> list[Finding]:
    facts, sensors = device.facts, device.sensors()
    words = facts.name
    if facts.kind == "cuda":
        words += (
            f", sm_{facts.arch}, {facts.memory_bytes / 2**30:.0f} GiB, L2 {facts.l2_bytes / 2**20:.0f} MiB, "
            f"{facts.sms} SMs, {facts.devices} visible"
        )
    found = [
        Finding("device", True, words),
        Finding("stands for", True, f"gpu {facts.gpu!r} of a deployment"),
    ]
    for name, value in sensors.values.items():
        if value is None:
            found.append(Finding(name, None, f"unknown: {sensors.missing[name]}"))
        else:
            text = ", ".join(value) or "none" if isinstance(value, tuple) else str(value)
            found.append(Finding(name, True, text))
    if sensors.throttled:
        found.append(Finding("clocks", False, f"throttled now: {', '.join(sensors.throttled)}"))
    return found


def _operations(device: Device, models: tuple[str, ...]) -> list[Finding]:
    found = []
    for job in jobs_for([], models, grid("cpu" if device.facts.kind == "cpu" else "quick")):
        reasons = [job.operation.refuse(point, device.facts) for point in job.points]
        possible = sum(reason is None for reason in reasons)
        why = next((reason for reason in reasons if reason is not None), "")
        words = job.operation.about
        if possible < len(reasons):
            words += f"; {len(reasons) - possible} of {len(reasons)} points not: {why}"
        found.append(Finding(job.operation.name, possible > 0, words))
    return found


def known_models() -> tuple[str, ...]:
    """Models that kernels have shapes for."""
    return tuple(MODELS)


def known_operations() -> tuple[str, ...]:
    return tuple(OPERATIONS)
