"""Collectives of one node through torch.distributed: NCCL between GPUs, gloo between two processes on a CPU.

`bytes` are those of the whole tensor: what a rank reduces, what it holds after a gather or brings to a
reduce-scatter, and what it sends in an all-to-all, its own part included. Dispatch and combine of experts
are all-to-alls. Every rank is a process of its own (`devices.ranks`); what counts is the slowest of them.

Leaves out the engines' own all-reduce kernels and DeepEP, which are faster on small messages: rows of NCCL
do not stand for those.
"""

from __future__ import annotations

from v4calib.device import DeviceFacts
from v4calib.grid import Grid, Point, inner
from v4calib.operations.base import MeasuredOperation
from v4calib.roofline import Work

WAYS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SIZES = (2, 4, 8)  # GPUs that take part
CPU_RANKS = 2


class Collective(MeasuredOperation):
    """One collective over the first `gpus` GPUs."""

    name = "collective"
    about = "all-reduce, all-gather, reduce-scatter and all-to-all between GPUs"
    kernel = "torch.distributed"
    group = "ranks"
    compiles = False

    def points(self, model: str, axes: Grid) -> list[Point]:
        return [
            Point(
                self.name,
                "any",
                (("bytes", size), ("way", way), ("gpus", gpus)),
                inner(axes.message_bytes, size),
            )
            for gpus in ((CPU_RANKS,) if axes.name == "cpu" else SIZES)
            for way in WAYS
            for size in axes.message_bytes
        ]

    def refuse(self, point: Point, facts: DeviceFacts) -> str | None:
        if facts.kind == "cpu":
            return None if point["gpus"] == CPU_RANKS else f"a CPU stands in for {CPU_RANKS} ranks"
        if facts.devices < point["gpus"]:
            return f"needs {point['gpus']} GPUs, this node has {facts.devices}; stays as published"
        return None

    def work(self, point: Point) -> Work:
        """What must enter a GPU, whatever the algorithm: all but its own part."""
        return Work(nvlink_bytes=point["bytes"] * (point["gpus"] - 1) // point["gpus"])

    def footprint_bytes(self, point: Point) -> int:
        return 2 * point["bytes"]
