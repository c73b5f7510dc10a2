"""Runs made by hand: traces of a few rows and call columns whose right answers are worked out on paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from v4sim.metrics.calls import INT_COLUMNS, Calls
from v4traces import CallRow, TraceMetadata, TraceTable, TraceWriter, read_table

MakeTrace = Callable[[Sequence[CallRow]], TraceTable]

# One second in the unit of the clock.
S = 1_000_000_000


@pytest.fixture
def make_trace(tmp_path: Path) -> MakeTrace:
    def make(rows: Sequence[CallRow]) -> TraceTable:
        path = tmp_path / "trace.parquet"
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
