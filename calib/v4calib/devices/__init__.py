"""The devices that `v4calib run` can measure on, and what is the matter with those that it cannot.

`open_device` raises a `CalibError` of one line where there is no GPU, no torch, or a toolchain that cannot
compile for the GPU. torch is imported here and below, nowhere else in the calibrator.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from importlib import metadata

from v4calib.device import Device
from v4calib.errors import CalibError
from v4sim.model.hardware import gpu_names

KINDS = ("cuda", "cpu")
_LIBRARIES = ("torch", "triton", "nvidia-ml-py", "numpy")
BLACKWELL = 100


def open_device(kind: str, gpu: str | None, compile_s: float = 120.0) -> Device:
    """The device to measure on. `gpu` overrides the name that v4sim has for it."""
    if kind not in KINDS:
        raise CalibError(f"--device {kind}: choose one of {', '.join(KINDS)}.")
    if gpu is not None and gpu not in gpu_names():
        raise CalibError(f"--gpu {gpu}: v4sim describes {', '.join(gpu_names())}.")
    if importlib.util.find_spec("torch") is None:
        raise CalibError("torch is not installed here: pip install 'v4sim[gpu]' on the GPU node.")
    if kind == "cpu":
        from v4calib.devices.cpu import CpuDevice

        return CpuDevice(gpu or "b200", libraries())
    from v4calib.devices.cuda import CudaDevice

    return CudaDevice(gpu, libraries(), compile_s)


def libraries() -> Mapping[str, str]:
    """Installed versions of what a measurement depends on."""
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def refuse_toolchain(arch: int, triton: str | None) -> str | None:
    """Why this Triton cannot compile for this GPU: ptxas for Blackwell ships from 3.6.0 on."""
    if triton is None:
        return "triton is not installed: pip install 'v4sim[gpu]' on the GPU node."
    numbers = tuple(int(n) for n in re.findall(r"\d+", triton)[:2])
    if arch >= BLACKWELL and numbers < (3, 6):
        return (
            f"triton {triton} cannot compile for sm_{arch}: its ptxas knows Blackwell from 3.6.0 on; install "
            "triton >= 3.6 (torch >= 2.10 brings it)."
        )
    return None


def refuse_slice(name: str) -> None:
    """A MIG device has a share of SMs, memory and L2: its times stand for no GPU of a deployment."""
    if "MIG" in name.split():
        raise CalibError(f"{name} is a slice of a GPU, whose times stand for none: run on a whole one.")


def gpu_of(name: str) -> str | None:
    """v4sim's name of a GPU from the driver's: `NVIDIA GB200` is gb200, `NVIDIA H200 NVL` h200."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return next((word for word in words if word in gpu_names()), None)
