"""Runs made by hand: traces of a few rows and call columns whose right answers are worked out on paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from v4sim.cost.base import PART_INDEX, PARTS
from v4sim.metrics.calls import INT_COLUMNS, Calls
from v4sim.metrics.epochs import EngineTotals
from v4sim.metrics.histogram import LogHistogram
from v4sim.results import STEP_KINDS, PoolSummary, RankTotals, RunResult, StepTotals
from v4traces import CallRow, TraceMetadata, TraceTable, TraceWriter, read_table

MakeTrace = Callable[[Sequence[CallRow]], TraceTable]

# One second in the unit of the clock.
S = 1_000_000_000


@pytest.fixture(scope="session")
def make_trace(tmp_path_factory: pytest.TempPathFactory) -> MakeTrace:
    path: Path = tmp_path_factory.mktemp("traces") / "trace.parquet"

    def make(rows: Sequence[CallRow]) -> TraceTable:
        with TraceWriter(path, TraceMetadata("hand", "synthetic"), force=True) as writer:
            writer.append(rows)
        return read_table(path)

    return make


@pytest.fixture(scope="session")
def call_columns() -> Callable[..., dict[str, list[Any]]]:
    """Columns from one dict per call; what a dict leaves out is 0, or -1 for a moment."""

    def columns(calls: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
        made: dict[str, list[Any]] = {}
        for name in INT_COLUMNS:
            default = -1 if name.endswith("_ns") and not name.startswith(("wait", "gpu")) else 0
            made[name] = [call.get(name, default) for call in calls]
        made["first_seen_ns"] = [call.get("first_seen_ns", call.get("first_token_ns", -1)) for call in calls]
        made["event_class"] = [call.get("event_class", "cold") for call in calls]
        made["done"] = [call.get("done", "completed") for call in calls]
        return made

    return columns


@pytest.fixture(scope="session")
def make_calls(call_columns: Callable[..., dict[str, list[Any]]]) -> Callable[..., Calls]:
    return lambda calls: Calls.of(call_columns(calls))


@pytest.fixture(scope="session")
def served() -> Callable[..., dict[str, Any]]:
    """A completed call by its moments in seconds; tokens and the rest by keyword."""

    def call(row: int, sent: float, admit: float, first: float, last: float, **rest: Any) -> dict[str, Any]:
        moments = {"ready_ns": sent, "sent_ns": sent, "queued_ns": sent, "admit_ns": admit}
        moments |= {"first_token_ns": first, "last_token_ns": last}
        return {"row": row} | {name: round(at * S) for name, at in moments.items()} | rest

    return call


@pytest.fixture(scope="session")
def make_steps() -> Callable[..., StepTotals]:
    """Step totals from lists of steps, each a dict of parts in seconds, by kind."""

    def make(**steps: Sequence[dict[str, float]]) -> StepTotals:
        parts_ns = {kind: np.zeros(len(PARTS), dtype=np.int64) for kind in STEP_KINDS}
        durations = {kind: LogHistogram() for kind in STEP_KINDS}
        for kind, listed in steps.items():
            for step in listed:
                for part, seconds in step.items():
                    parts_ns[kind][PART_INDEX[part]] += round(seconds * S)
                durations[kind].add(np.array([round(sum(step.values()) * S)]))
        return StepTotals(parts_ns, {kind: len(steps.get(kind, ())) for kind in STEP_KINDS}, durations)

    return make


@pytest.fixture(scope="session")
def make_totals(make_steps: Callable[..., StepTotals]) -> Callable[..., EngineTotals]:
    """Engine totals of [0, end_s) without gaps between tokens."""

    def make(
        end_s: float, busy_s: Any = ((0.0,),), mixed_tokens: tuple[int, int] = (0, 0), **steps: Any
    ) -> EngineTotals:
        busy_ns = np.rint(np.array(busy_s) * S).astype(np.int64)
        return EngineTotals(
            0, round(end_s * S), make_steps(**steps), LogHistogram(), LogHistogram(), busy_ns, mixed_tokens
        )

    return make


@pytest.fixture(scope="session")
def make_result(
    call_columns: Callable[..., dict[str, list[Any]]], make_steps: Callable[..., StepTotals]
) -> Callable[..., RunResult]:
    """A run of one replica with `ranks` ranks; every field by keyword."""

    def make(
        calls: Sequence[dict[str, Any]] = (), ranks: int = 1, end_s: float = 100.0, **fields: Any
    ) -> RunResult:
        made: dict[str, Any] = {
            "calls": call_columns(calls),
            "steps": make_steps(decode=[{"moe": 1.0}]),
            "itl_burst": LogHistogram(),
            "itl_divided": LogHistogram(),
            "series": {"t_ns": np.zeros(0, dtype=np.int64)},
            "ranks": [RankTotals(0, rank) for rank in range(ranks)],
            "pools": [PoolSummary("kv", 0, rank, 1000, 500, 0, 0, 0) for rank in range(ranks)],
            "blocked": {},
            "acceptance": {},
            "end_ns": round(end_s * S),
            "stepped_ns": S,
            "num_replicas": 1,
            "alive_target": None,
        }
        return RunResult(**(made | fields))

    return make
