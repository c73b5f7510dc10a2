"""How much host memory a cache tier would pin, and what a node can give: arithmetic before anything starts.

Per rank a host tier mirrors the device pools `ratio` times. All ranks of a node share its memory.
Rules: SGLang's automatic ratio uses 0.8 of what is available after 10 GiB, the smaller of machine and
container limit, and the minimum over all nodes; benchmark rules allow 80 to 95 % of a node to be pinned.
"""

from __future__ import annotations

from collections.abc import Sequence

from v4sim.errors import CapacityError

GIB = 1 << 30
KEEP_FREE_GIB = 10.0
USABLE_SHARE = 0.8


def pinned_bytes(device_bytes_per_rank: int, ratio: float, ranks_per_node: int) -> int:
    """Host memory that a tier of `ratio` times the device pools pins on one node."""
    return round(device_bytes_per_rank * ratio) * ranks_per_node


def largest_ratio(device_bytes_per_rank: int, ranks_per_node: int, node_bytes: int) -> float:
    """The largest ratio whose pinned memory still fits the node."""
    return node_bytes / (device_bytes_per_rank * ranks_per_node)


def check_ratio(device_bytes_per_rank: int, ratio: float, ranks_per_node: int, node_bytes: int) -> int:
    """The pinned bytes of a node, or a `CapacityError` with both numbers and the largest ratio that fits."""
    pinned = pinned_bytes(device_bytes_per_rank, ratio, ranks_per_node)
    if pinned > node_bytes:
        most = int(largest_ratio(device_bytes_per_rank, ranks_per_node, node_bytes) * 100) / 100
        raise CapacityError(
            f"A host tier of {ratio:g} times the device pools pins {pinned / 1e12:.2f} TB on a node of "
            f"{node_bytes / 1e12:.2f} TB. The largest ratio that fits is {most:g}."
        )
    return pinned


def auto_budget_gib(
    available_gib: Sequence[float], limit_gib: Sequence[float | None], ranks_per_node: int
) -> float:
    """Host memory of one rank when the engine sizes the tier itself: the smallest node decides.

    available_gib and limit_gib (container limit, None: none) have one entry per node.
    """
    budgets = [
        USABLE_SHARE * (min(free, free if limit is None else limit) - KEEP_FREE_GIB) / ranks_per_node
        for free, limit in zip(available_gib, limit_gib, strict=True)
    ]
    budget = min(budgets)
    if budget <= 0:
        raise CapacityError(
            f"The host tier would have no memory: the smallest node offers "
            f"{min(available_gib):g} GiB (container limit {limit_gib[budgets.index(budget)]}), of which "
            f"{KEEP_FREE_GIB:g} GiB stay free. Raise the container's limit or run without the tier."
        )
    return budget
