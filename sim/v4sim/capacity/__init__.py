"""What fits on one GPU, and how many tokens that leaves for the cache."""

from __future__ import annotations

from v4sim.capacity.base import RankPools

__all__ = ["RankPools"]
