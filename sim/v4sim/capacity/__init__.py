"""What fits on one GPU, and how many tokens that leaves for the cache.

`pools(deployment, spec)` is the question every run asks first; `host` has the arithmetic of host tiers.
"""

from __future__ import annotations

from v4sim.capacity.base import LedgerLine, RankPools
from v4sim.capacity.planner import pools

__all__ = ["LedgerLine", "RankPools", "pools"]
