"""Statistics of a trace, in the terms that published studies of agent traffic use.

"Suffix" is the prompt without the longest prefix shared with an earlier call of the same task, or of
the whole trace.
"Session life" runs from the first call to the end of the last one on the recorded clock: delays plus
the durations that were observed; calls without an observed duration count as instantaneous, so it is
a lower bound. "Branch depth" counts, on the way from a root to a call, the calls that did not simply
extend the newest end of their parent.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4traces.bounds import lost_tokens, previous_in_session, scoped_bound_tokens
from v4traces.schema import TRIGGERS
from v4traces.table import Int64s, TraceTable

QUANTILES = (10, 25, 50, 75, 90, 95, 99)
# A call counts as diverging when this many blocks of the previous prompt are gone; without blocks,
# this many tokens.
_DIVERGE_BLOCKS = 2
_DIVERGE_TOKENS = 128
# And as compacted when its prompt has less than this share of the previous one.
_COMPACTED = 0.5


@dataclass(frozen=True, slots=True)
class Distribution:
    """Quantiles by their percentage; None where there is nothing to count."""

    count: int
    mean: float | None
    min: float | None
    max: float | None
    quantiles: dict[str, float]

    @classmethod
    def of(cls, values: NDArray[Any]) -> Distribution:
        if values.size == 0:
            return cls(0, None, None, None, {})
        points = np.percentile(values, QUANTILES)
        return cls(
            count=int(values.size),
            mean=float(values.mean()),
            min=float(values.min()),
            max=float(values.max()),
            quantiles={f"p{q}": float(value) for q, value in zip(QUANTILES, points, strict=True)},
        )


@dataclass(frozen=True, slots=True)
class HitBounds:
    """Shares of all prompt tokens that an infinite cache serves, cold first calls counted."""

    own_task: float
    own_session: float
    whole_trace: float
    # Of all tokens that miss within the task, the share in the 2 % of calls that miss most.
    missed_by_top_2_percent: float


@dataclass(frozen=True, slots=True)
class TraceStats:
    """Counts, distributions and bounds of one trace."""

    calls: int
    sessions: int
    sub_agents: int
    tasks: int
    continuing_sessions: int  # whose first prompt is at least half that of another session's call
    joins: int  # calls that wait for more than one call
    prompt_tokens: int
    output_tokens: int
    triggers: dict[str, int]
    models: dict[str, int]
    diverging_share: float  # of calls that have one before them in their session
    compacted_share: float
    hit_bounds: HitBounds
    distributions: dict[str, Distribution]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def trace_stats(table: TraceTable) -> TraceStats:
    """All statistics of `table`."""
    tasks = table.task_of_row()
    own_task = scoped_bound_tokens(table, tasks)
    own_session = scoped_bound_tokens(table, table.session)
    previous = previous_in_session(table)
    later = previous >= 0
    first = ~later
    before = table.prompt_tokens[np.maximum(previous, 0)]
    unit = table.metadata.block_tokens * _DIVERGE_BLOCKS or _DIVERGE_TOKENS
    diverging = later & (lost_tokens(table, own_session, previous) > unit)
    compacted = later & (table.prompt_tokens < _COMPACTED * before)
    is_agent = table.trigger == TRIGGERS.index("subagent")
    crossing = first & (table.parent >= 0) & ~is_agent & (table.shared_tokens >= 0.5 * table.prompt_tokens)
    return TraceStats(
        calls=table.n,
        sessions=int(np.count_nonzero(first)),
        sub_agents=int(np.count_nonzero(is_agent & first)),
        tasks=int(tasks.max()) + 1,
        continuing_sessions=int(np.count_nonzero(crossing)),
        joins=int(np.count_nonzero(np.diff(table.after_offsets) > 1)),
        prompt_tokens=int(table.prompt_tokens.sum()),
        output_tokens=int(table.output_tokens.sum()),
        triggers=_counts(table.trigger, list(TRIGGERS)),
        models=_counts(table.model, table.model_names),
        diverging_share=_share(diverging, later),
        compacted_share=_share(compacted, later),
        hit_bounds=_hit_bounds(table, own_task, own_session),
        distributions=_distributions(table, own_task, first),
    )


def _distributions(table: TraceTable, own_task: Int64s, first: NDArray[np.bool_]) -> dict[str, Distribution]:
    begins, ends = session_times(table)
    life = np.full(len(table.session_names), -np.inf)
    np.maximum.at(life, table.session, ends)
    depth = np.zeros(len(table.session_names), dtype=np.int64)
    np.maximum.at(depth, table.session, branch_depth(table))
    values: dict[str, NDArray[Any]] = {
        "calls_per_session": np.bincount(table.session),
        "prompt_tokens": table.prompt_tokens,
        "first_prompt_tokens": table.prompt_tokens[first],
        "suffix_tokens": table.prompt_tokens - own_task,
        "suffix_in_trace_tokens": table.prompt_tokens - table.bound_tokens(),
        "output_tokens": table.output_tokens,
        "own_task_hit_share": (own_task / table.prompt_tokens)[~first],
        "session_life_s": life - begins[first],
        "branch_depth": depth,
    }
    for code, trigger in enumerate(TRIGGERS):
        values[f"delay_s_{trigger}"] = table.delay_s[(table.trigger == code) & ~first]
    for name in ("tool_latency_s", "observed_ttft_s", "observed_e2e_s"):
        column = getattr(table, name)
        values[name] = column[~np.isnan(column)]
    return {name: Distribution.of(array) for name, array in values.items()}


def session_times(table: TraceTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Begin and end of each call, seconds, from arrivals, delays and observed durations."""
    taken = np.where(np.isnan(table.observed_e2e_s), 0.0, table.observed_e2e_s).tolist()
    arrival = np.where(np.isnan(table.arrival_s), 0.0, table.arrival_s).tolist()
    offsets, rows, delay = table.after_offsets.tolist(), table.after_rows.tolist(), table.delay_s.tolist()
    begins, ends = [0.0] * table.n, [0.0] * table.n
    for row in range(table.n):
        ready = arrival[row]
        for awaited in rows[offsets[row] : offsets[row + 1]]:
            if ends[awaited] > ready:
                ready = ends[awaited]
        begins[row] = ready + delay[row]
        ends[row] = begins[row] + taken[row]
    return np.array(begins), np.array(ends)


def branch_depth(table: TraceTable) -> Int64s:
    """Per row: how many branches lie on its way to the root of its parent links."""
    parent = table.parent.tolist()
    whole = (table.shared_tokens + table.metadata.prefix_error_tokens >= _parent_prompts(table)).tolist()
    extended = bytearray(table.n)
    depth = [0] * table.n
    for row in range(table.n):
        above = parent[row]
        if above < 0:
            continue
        if whole[row] and not extended[above]:
            extended[above] = 1
            depth[row] = depth[above]
        else:
            depth[row] = depth[above] + 1
    return np.array(depth, dtype=np.int64)


def _parent_prompts(table: TraceTable) -> Int64s:
    return np.where(table.parent >= 0, table.prompt_tokens[np.maximum(table.parent, 0)], 0)


def _hit_bounds(table: TraceTable, own_task: Int64s, own_session: Int64s) -> HitBounds:
    total = int(table.prompt_tokens.sum())
    missed: Int64s = np.sort(table.prompt_tokens - own_task)[::-1]
    top = missed[: max(round(0.02 * table.n), 1)]
    return HitBounds(
        own_task=float(own_task.sum() / total),
        own_session=float(own_session.sum() / total),
        whole_trace=float(table.bound_tokens().sum() / total),
        missed_by_top_2_percent=float(top.sum() / max(int(missed.sum()), 1)),
    )


def _counts(codes: NDArray[Any], names: list[str]) -> dict[str, int]:
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}


def _share(part: NDArray[np.bool_], whole: NDArray[np.bool_]) -> float:
    return int(np.count_nonzero(part)) / max(int(np.count_nonzero(whole)), 1)
