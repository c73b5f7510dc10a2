"""What a report knows about a run, as plain data. Maps keep the order of the file.

An optional figure that the run does not know is None or an empty map, never a zero. Units are those of the
names: _ms, _s, _tokens; instants are simulated seconds since the start of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from v4reports.numbers import seconds_like

if TYPE_CHECKING:
    from v4reports.columns import Calls, Series
    from v4reports.limiter import Limiter


@dataclass(frozen=True, slots=True)
class Dist:
    """Percentiles of one quantity; intervals are 80 % bootstrap over sessions where they are known."""

    count: int
    mean: float
    min: float
    max: float
    p50: float
    p90: float
    p95: float
    p99: float
    p50_ci: tuple[float, float] | None = None
    p95_ci: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Headline:
    sentence: str
    number: float | None
    unit: str
    what_limits: tuple[str, ...]
    try_next: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    replica: int
    rank: int
    capacity_tokens: float
    peak_tokens: float | None
    mean_tokens: float | None


@dataclass(frozen=True, slots=True)
class Rank:
    replica: int
    rank: int
    busy_s: float
    attention_s: float
    decode_tokens: int
    prefill_tokens: int
    utilisation: float | None


@dataclass(frozen=True, slots=True)
class Phase:
    """Draft tokens offered and accepted at each draft position during one phase of the output."""

    offered: tuple[float, ...]
    accepted: tuple[float, ...]

    @property
    def rate(self) -> tuple[float | None, ...]:
        pairs = zip(self.offered, self.accepted, strict=True)
        return tuple(accepted / offered if offered else None for offered, accepted in pairs)


@dataclass(frozen=True, slots=True)
class Speculation:
    kind: str
    draft_tokens: int
    mean_accepted_length: float | None
    by_phase: Mapping[str, Phase]

    @property
    def is_on(self) -> bool:
        return self.kind not in ("", "off")


@dataclass(frozen=True, slots=True)
class Blocked:
    calls: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """One view of the run (steady window or all of it). Maps keep the order of the file."""

    ttft_ms: Mapping[str, Dist]
    itl_burst_ms: Dist | None
    itl_ms: Dist | None
    tpot_ms: Dist | None
    e2e_ms: Dist | None
    queue_ms: Dist | None
    step_ms: Mapping[str, Dist]
    throughput: Mapping[str, float]
    tokens: Mapping[str, float]
    hit: Mapping[str, float]
    parts_s: Mapping[str, float]
    parts_by_kind_s: Mapping[str, Mapping[str, float]]
    pools: tuple[Pool, ...]
    ranks: tuple[Rank, ...]
    speculation: Speculation | None
    blocked: Mapping[str, Blocked]
    tasks: Mapping[str, float]
    task_e2e_s: Dist | None
    cost: Mapping[str, float]
    calls: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the seconds of one operation come from."""

    op: str
    kind: str
    source: str
    domain: str
    residual: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One run directory. Its path is not part of it: where a run lies must not show in its report."""

    manifest: Mapping[str, Any]
    headline: Headline
    totals: Mapping[str, Any]
    window_s: tuple[float, float] | None
    window_rule: str
    engine_window_s: tuple[float, float] | None  # what step times and gaps between tokens cover
    steady: Metrics
    full: Metrics
    series: Series | None
    calls: Calls | None
    provenance: tuple[Source, ...]
    domain_warnings: tuple[str, ...]
    assumptions: tuple[str, ...]
    limiter: Limiter | None = None

    @property
    def engine_scope(self) -> str:
        """What step times and gaps between tokens of the steady tree cover, for captions.

        The engine counts them in stretches of time of its own, which may be as long as the run.
        """
        if self.window_s is None or self.engine_window_s is None:
            return "steady window"
        (start, end), (first, last) = self.window_s, self.engine_window_s
        if max(abs(first - start), abs(last - end)) <= (end - start) / 10:
            return "steady window"
        run_s = self.totals.get("simulated_s")
        if first <= 0 and isinstance(run_s, int | float) and last >= 0.99 * run_s:
            return "whole run"
        return f"{seconds_like(first, last)} to {seconds_like(last, last)}"
