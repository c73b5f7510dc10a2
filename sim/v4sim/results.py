"""What a simulation hands to metrics, laws and the run directory: plain data, nothing to run.

Units: integer nanoseconds (`_ns`), tokens (`_tokens`). Calls are columns, one entry per injected call
in order of injection; -1 marks what was not reached or is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4sim.metrics.histogram import LogHistogram

STEP_KINDS = ("decode", "prefill", "mixed")


@dataclass(slots=True)
class StepTotals:
    """Engine steps by kind: how many, how long, and where the time went (integer ns per part)."""

    parts_ns: dict[str, NDArray[np.int64]]  # kind -> time per entry of v4sim.cost.PARTS
    counts: dict[str, int]
    durations: dict[str, LogHistogram]

    @property
    def total_ns(self) -> int:
        return sum(int(parts.sum()) for parts in self.parts_ns.values())


@dataclass(slots=True)
class RankTotals:
    """One rank over the whole run. A rank is busy in a step in which it has rows or chunks of its own."""

    replica: int
    rank: int
    busy_ns: int = 0
    idle_ns: int = 0  # replica stepped, this rank had nothing
    decode_rows: int = 0  # row-steps, those of a late result included
    decode_tokens: int = 0
    prefill_tokens: int = 0

    @property
    def stepped_ns(self) -> int:
        return self.busy_ns + self.idle_ns


@dataclass(frozen=True, slots=True)
class PoolSummary:
    """One named pool of one rank at the end, with its peak. Units: tokens, or slots."""

    name: str
    replica: int
    rank: int
    capacity: int
    peak: int
    used_at_end: int
    resident_at_end: int  # of which cached prefixes; the rest would be a leak
    evicted: int


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything a run found out."""

    calls: dict[str, Any]
    steps: StepTotals
    itl_burst: LogHistogram
    itl_divided: LogHistogram
    series: dict[str, NDArray[np.int64]]
    ranks: list[RankTotals]
    pools: list[PoolSummary]
    blocked: dict[str, tuple[int, int]]  # reason -> (calls, ns)
    acceptance: dict[str, tuple[list[int], list[int]]]
    end_ns: int
    stepped_ns: int  # time in which some replica stepped, summed over replicas
    num_replicas: int
    alive_target: int | None  # sessions kept alive, None in an open loop
    blocks: list[tuple[int, int, int, str, int, int]] = field(default_factory=list)
    blocks_dropped: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def num_calls(self) -> int:
        return len(self.calls["row"])

    @property
    def num_steps(self) -> int:
        return sum(self.steps.counts.values())
