"""`Work`: what one launch must do at least, in bytes and operations, and the time a roofline gives it.

Counts are lower bounds from the algorithm: every input byte is read from HBM once, every output byte
written once. Re-reads that hit L2, padding to tiles, launch latency and scheduling are left out, because
the measured fraction of this bound is what tells about them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """Lower-bound work of one launch."""

    read_bytes: int = 0
    write_bytes: int = 0
    matrix_flops: int = 0
    """Multiply and add counted apart (2 per MAC), on the tensor cores."""
    fp32_ops: int = 0
    """Instructions per lane on the FP32 pipe; an FMA is one."""
    link_bytes: int = 0
    """Bytes over the host link."""

    @property
    def hbm_bytes(self) -> int:
        return self.read_bytes + self.write_bytes

    def __add__(self, other: Work) -> Work:
        return Work(
            self.read_bytes + other.read_bytes,
            self.write_bytes + other.write_bytes,
            self.matrix_flops + other.matrix_flops,
            self.fp32_ops + other.fp32_ops,
            self.link_bytes + other.link_bytes,
        )

    def legs_s(self, device: DeviceRates, matrix_flops_per_s: float) -> dict[str, float]:
        """Seconds of each roofline leg alone; the launch takes at least the largest of them."""
        return {
            "hbm": self.hbm_bytes / device.hbm_bytes_per_s,
            "matrix": self.matrix_flops / matrix_flops_per_s,
            "fp32": self.fp32_ops / device.fp32_ops_per_s,
            "link": self.link_bytes / device.link_bytes_per_s,
        }


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """Ceilings of one GPU, measured or from its specification; the caller says which."""

    hbm_bytes_per_s: float
    fp32_ops_per_s: float
    """Lane instructions per second: SMs × 128 × clock (half of the FLOP/s on the data sheet)."""
    link_bytes_per_s: float
