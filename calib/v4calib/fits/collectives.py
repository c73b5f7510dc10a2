"""Collectives over the bytes of the whole tensor, for each number of GPUs that was there.

All-gather and reduce-scatter are NCCL in the engines too and take the place of published tables. All-reduce
and all-to-all get names of their own (`all_reduce.nccl`, `all_to_all`), which the simulator does not read:
engines reduce small messages with kernels of theirs and dispatch with DeepEP or inside the expert kernel, and
NCCL's times would overprice both.
"""

from __future__ import annotations

from v4calib.draft import Draft
from v4calib.fits.bench import Bench, add_curve, compare_curve

_NAMES = {
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_reduce": "all_reduce.nccl",
    "all_to_all": "all_to_all",
}


def add_collectives(draft: Draft, bench: Bench, source: str) -> None:
    """A table for every way and number of GPUs."""
    rows = bench.rows("collective", "any")
    for way, gpus in sorted({(m.point.word("way"), m.point["gpus"]) for m in rows}):
        name = f"{_NAMES[way]}.gpus{gpus}"
        curve = bench.curve("collective", "any", "bytes", way=way, gpus=gpus)
        if curve is None:
            bench.skip(name, "fewer than two sizes were measured")
            continue
        add_curve(draft, name, "bytes", curve, source, "bytes of the whole tensor, torch.distributed")
        compare_curve(draft, bench, name, curve, "bytes", "collective", "any", way=way, gpus=gpus)
