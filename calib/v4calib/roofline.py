"""The three-leg roofline of a launch, and the gate that no row passes which breaks it.

HBM bytes, matrix FLOPs in the format that the kernel multiplies in, and FP32 pipe instructions. For the
index scan the third is the head sum: a ReLU and a multiply-add a head, query and key, which FP8 and FP4
matrix units do not speed up. Page copies have the host link for a fourth leg, collectives NVLink one way
for a fifth. Peaks are the data sheet's (a launch may not beat those), never what a run measured. Time that a
launch takes at least, empty, is added before "under 1 %" is judged: a tiny launch is not a broken one.

Of L2 only this: what a launch writes may stay there, and hot rows are held against the arithmetic legs alone.
Units: bytes, FLOPs (two a multiply-add), FP32 lane instructions, microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from v4calib.device import DeviceFacts
from v4sim.model.hardware import GpuSpec, gpu

TOO_FAST, TOO_SLOW = 1.0, 0.01
LAUNCH_US = 3.0  # an empty graph node, with what it waits for
_LANES = 128  # FP32 lanes of an SM
_CLOCK_GHZ = 1.98  # highest boost of these parts, H200; others lie below, so the leg stays a bound
_PCIE_BYTES_PER_US = 64_000.0


@dataclass(frozen=True, slots=True)
class Work:
    """Lower-bound work of one launch, the same counts as the kernels' own."""

    read_bytes: int = 0
    write_bytes: int = 0
    matrix_flops: int = 0
    fp32_ops: int = 0
    link_bytes: int = 0
    nvlink_bytes: int = 0

    @property
    def hbm_bytes(self) -> int:
        return self.read_bytes + self.write_bytes


@dataclass(frozen=True, slots=True)
class Rates:
    """Peak rates per microsecond, and the size of the L2."""

    hbm_bytes: float
    fp8_flops: float
    bf16_flops: float
    fp4_flops: float
    fp32_ops: float
    link_bytes: float
    nvlink_bytes: float
    l2_bytes: int = 0  # not a rate: what may be written and never reach HBM while it is timed

    def matrix(self, fmt: str) -> float:
        return {"fp8": self.fp8_flops, "bf16": self.bf16_flops, "fp4": self.fp4_flops}[fmt]


def peaks(facts: DeviceFacts) -> Rates | None:
    """Data-sheet rates of the GPU; None on a CPU, whose roofline nobody needs."""
    if facts.kind != "cuda":
        return None
    spec: GpuSpec = gpu(facts.gpu)
    return Rates(
        hbm_bytes=spec.hbm_gb_s * 1e3,
        fp8_flops=spec.fp8_tflops * 1e6,
        bf16_flops=spec.bf16_tflops * 1e6,
        fp4_flops=(spec.fp4_tflops or spec.fp8_tflops) * 1e6,
        fp32_ops=facts.sms * _LANES * _CLOCK_GHZ * 1e3,
        link_bytes=max(spec.host_link_gb_s * 1e3, _PCIE_BYTES_PER_US),
        nvlink_bytes=spec.nvlink_gb_s * 1e3,
        l2_bytes=facts.l2_bytes,
    )


def legs_us(work: Work, rates: Rates, fmt: str) -> dict[str, float]:
    """Each leg alone."""
    return {
        "hbm": (work.read_bytes + max(work.write_bytes - rates.l2_bytes, 0)) / rates.hbm_bytes,
        "matrix": work.matrix_flops / rates.matrix(fmt),
        "fp32": work.fp32_ops / rates.fp32_ops,
        "link": work.link_bytes / rates.link_bytes,
        "nvlink": work.nvlink_bytes / rates.nvlink_bytes,
    }


def bound_us(work: Work, rates: Rates, fmt: str, l2: str) -> tuple[str, float]:
    """The leg that bounds a launch, and its time."""
    legs = legs_us(work, rates, fmt)
    if l2 == "hot":
        legs["hbm"] = 0.0
    leg = max(legs, key=lambda name: legs[name])
    return leg, legs[leg]


def refuse(us: float, work: Work, rates: Rates | None, fmt: str, l2: str) -> str | None:
    """Why a time cannot be true, or None."""
    if rates is None:
        return None
    leg, bound = bound_us(work, rates, fmt, l2)
    if us < TOO_FAST * bound:
        return (
            f"{us:.3g} us is {bound / us:.0%} of the {leg} roofline ({bound:.3g} us): the kernel cannot have "
            "done its work, or the clock is wrong"
        )
    fraction = (bound + LAUNCH_US) / us
    if l2 == "cold" and fraction < TOO_SLOW:
        return (
            f"{us:.3g} us is {fraction:.2%} of the roofline with its launch ({bound + LAUNCH_US:.3g} us): "
            "the kernel fell back to something else, or the device is not its own"
        )
    return None
