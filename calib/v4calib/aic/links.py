"""Links and storage: no kernel table has them, so they are rates with the source that states them.

Bytes to time, no latency term: the sources give rates of large transfers only. The engine shares these
links between transfers; here is what one transfer gets alone.
"""

from __future__ import annotations

from v4calib.aic.draft import DEVICE, Draft
from v4sim.model.hardware import gpu as gpu_spec

_GIB = 1 << 30
_PCIE5_EFFICIENCY = 55 / 64  # 50 to 57 GB/s is the usual range of a 64 GB/s link
_C2C_EFFICIENCY = 346 / 450  # GH200 copy engine against 450 GB/s one way


def add_links(draft: Draft) -> None:
    device = gpu_spec(draft.gpu)
    c2c = device.host_link_gb_s > 200
    copy = device.host_link_gb_s * (_C2C_EFFICIENCY if c2c else _PCIE5_EFFICIENCY)
    # nvbandwidth: an SM kernel reads pinned host memory at 35.2 of 52.8 GB/s (PCIe 5), 342 of 346 (C2C).
    gather = copy * (342 / 346 if c2c else 35.2 / 52.8)
    copy_source = (
        "NVIDIA/nvbandwidth issue #23 (GH200 C2C 346 GB/s), scaled to this GPU's share of the link"
        if c2c
        else "usual pinned copy-engine range 50-57 GB/s of a 64 GB/s PCIe 5 x16 link; no log of this GPU"
    )
    gather_source = (
        "NVIDIA/nvbandwidth issue #23 (GH200 C2C, SM copy)"
        if c2c
        else "NVIDIA/nvbandwidth issue #24 (H100: memcpy_sm H2D 35.2 GB/s against 52.8 GB/s by copy engine)"
    )
    _link(draft, "h2d_copy", copy, copy_source, 0.15)
    _link(draft, "h2d_gather", gather, gather_source, 0.25)
    _link(
        draft,
        "storage_read",
        16 * _GIB / 1e9,
        "gds-bench.farmgpu.net/kvbench: 549 KB KV blocks, GDS 16.4 and POSIX 14.8 GiB/s per GPU",
        0.3,
    )
    _link(
        draft,
        "pd_transfer",
        20.0,
        "ai-dynamo/dynamo recipes/deepseek-v4/README.md: 15-25 GB/s per rank with NIXL GPU-direct",
        0.25,
    )
    if device.arch == "blackwell":
        _link(
            draft,
            "ep_link",
            720.0,
            "DeepEP v2 README: SM100 EP8 dispatch 726, combine 740 GB/s (64 SMs)",
            0.1,
        )


def _link(draft: Draft, name: str, gb_s: float, source: str, error: float) -> None:
    key = draft.other(f"link.{name}", "published", source, DEVICE[draft.gpu] if "GPU" not in source else None)
    draft.add_fit(
        name,
        {"bytes": (1e6, 1e12)},
        [("per_byte", 1e-3 / gb_s, ("bytes",))],
        "sum",
        key,
        assumed=error,
    )
