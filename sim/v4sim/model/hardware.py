"""GPUs as data: memory, bandwidths, peak rates, links and a price band.

What is here: vendor figures and what drivers report. What is not: achieved rates. Those are
measured and belong in a calibration profile; a spec sheet never prices a kernel on its own.

Units: memory in MiB as the driver reports it (the marketing gigabytes of a data sheet differ by up
to 7 %), bandwidth in GB/s (10^9) one way, rates in dense TFLOP/s, price in $ per GPU-hour.

Sources: NVIDIA's aiconfigurator system files at 095f58a and InferenceX-app gpu-specs.ts at 77ca49a
for bandwidths, rates, SM counts and links; nvidia-smi totals for H100, H200 and B200 memory;
InferenceX-app constants.ts (April 2026, three-year rental = the typical price, hyperscaler TCO = the
low end) and on-demand lists of March to May 2026 (the high end) for prices. B300 and GB300 prices
are placeholders in their source too (1.2 x B200, 1.2 x GB200); their high ends keep that ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from v4sim.errors import ConfigError

MIB = 1 << 20

Arch = Literal["hopper", "blackwell"]


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU as its vendor and its driver describe it."""

    name: str
    arch: Arch
    memory_mib: int
    hbm_gb_s: float
    bf16_tflops: float
    fp8_tflops: float
    fp4_tflops: float  # 0 where the tensor cores have no FP4
    nvlink_gb_s: float
    host_link_gb_s: float
    host_link_note: str
    sm_count: int | None  # None: not in the sources
    host_memory_gib_per_gpu: float  # node DRAM divided by its GPUs
    gpus_per_node: int
    price_per_hour: float
    price_low: float
    price_high: float

    @property
    def memory_bytes(self) -> int:
        return self.memory_mib * MIB

    def node_memory_gib(self, num_gpus: int) -> float:
        """DRAM of the node that `num_gpus` of these stand in, or of their share of it if they are fewer."""
        return self.host_memory_gib_per_gpu * min(self.gpus_per_node, num_gpus)

    @property
    def has_fp4_index(self) -> bool:
        """FP4 index keys need Blackwell tensor cores (DeepGEMM ships FP4 logits for arch 10 only)."""
        return self.arch == "blackwell"


_PCIE5 = "PCIe 5 x16: 64 GB/s"
_C2C = "NVLink-C2C: 900 GB/s both ways per Grace, shared by two GPUs"

_GPUS: tuple[GpuSpec, ...] = (
    GpuSpec(
        name="b200",
        arch="blackwell",
        memory_mib=183_359,
        hbm_gb_s=7_700.0,
        bf16_tflops=2_250.0,
        fp8_tflops=4_500.0,
        fp4_tflops=9_000.0,
        nvlink_gb_s=900.0,
        host_link_gb_s=64.0,
        host_link_note=f"{_PCIE5} (aiconfigurator says PCIe 6, HGX B200 hosts in the field are PCIe 5)",
        sm_count=148,
        host_memory_gib_per_gpu=251.5,  # 2.06 TB nodes, the smaller of the two published
        gpus_per_node=8,
        price_per_hour=2.90,
        price_low=1.95,
        price_high=6.03,
    ),
    GpuSpec(
        name="b300",
        arch="blackwell",
        memory_mib=275_040,
        hbm_gb_s=7_750.0,
        bf16_tflops=2_250.0,
        fp8_tflops=4_500.0,
        fp4_tflops=13_500.0,
        nvlink_gb_s=900.0,
        host_link_gb_s=128.0,
        host_link_note="PCIe 6 x16: 128 GB/s",
        sm_count=None,
        host_memory_gib_per_gpu=361.3,  # 2.96 TB nodes
        gpus_per_node=8,
        price_per_hour=3.48,
        price_low=2.34,
        price_high=7.24,
    ),
    GpuSpec(
        name="h200",
        arch="hopper",
        memory_mib=143_771,
        hbm_gb_s=4_800.0,
        bf16_tflops=989.0,
        fp8_tflops=1_979.0,
        fp4_tflops=0.0,
        nvlink_gb_s=450.0,
        host_link_gb_s=64.0,
        host_link_note=_PCIE5,
        sm_count=132,
        host_memory_gib_per_gpu=179.4,  # 1.47 TB nodes, the smaller of the two published
        gpus_per_node=8,
        price_per_hour=1.60,
        price_low=1.40,
        price_high=4.54,
    ),
    GpuSpec(
        name="gb200",
        arch="blackwell",
        memory_mib=189_471,
        hbm_gb_s=8_000.0,
        bf16_tflops=2_500.0,
        fp8_tflops=5_000.0,
        fp4_tflops=10_000.0,
        nvlink_gb_s=900.0,
        host_link_gb_s=225.0,
        host_link_note=_C2C,
        sm_count=None,
        host_memory_gib_per_gpu=210.0,  # 0.86 TB per tray of four
        gpus_per_node=4,  # an NVL72 tray
        price_per_hour=3.30,
        price_low=2.21,
        price_high=4.54,
    ),
    GpuSpec(
        name="gb300",
        arch="blackwell",
        memory_mib=284_208,
        hbm_gb_s=8_000.0,
        bf16_tflops=2_500.0,
        fp8_tflops=5_000.0,
        fp4_tflops=15_000.0,
        nvlink_gb_s=900.0,
        host_link_gb_s=225.0,
        host_link_note=_C2C,
        sm_count=None,
        host_memory_gib_per_gpu=210.0,  # 0.86 TB per tray of four
        gpus_per_node=4,  # an NVL72 tray
        price_per_hour=3.96,
        price_low=2.65,
        price_high=5.45,
    ),
    GpuSpec(
        name="h100",
        arch="hopper",
        memory_mib=81_559,
        hbm_gb_s=3_350.0,
        bf16_tflops=989.0,
        fp8_tflops=1_979.0,
        fp4_tflops=0.0,
        nvlink_gb_s=450.0,
        host_link_gb_s=64.0,
        host_link_note=_PCIE5,
        sm_count=132,
        host_memory_gib_per_gpu=251.5,  # 2.06 TB nodes
        gpus_per_node=8,
        price_per_hour=1.30,
        price_low=1.30,
        price_high=5.00,
    ),
)

_BY_NAME = {spec.name: spec for spec in _GPUS}


def gpu_names() -> tuple[str, ...]:
    """The GPUs that are described, in the order in which they are listed."""
    return tuple(_BY_NAME)


def gpu(name: str) -> GpuSpec:
    """The GPU of that name; a `ConfigError` that lists the choices otherwise."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise ConfigError(
            f"hardware.gpu = {name!r} is not a GPU that is described here; choose one of "
            f"{', '.join(gpu_names())}, or add it to v4sim/model/hardware.py."
        ) from None
