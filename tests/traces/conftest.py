"""Small traces and logs for the tests of v4traces, and a strategy for legal traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from v4traces import CallRef, CallRow, Phase, TraceMetadata, TraceTable, TraceWriter
from v4traces.importers import importer
from v4traces.importers.base import ImportOptions, import_trace
from v4traces.schema import METADATA_KEY, PHASES, TRIGGERS, arrow_schema

PLAIN = TraceMetadata("test", "synthetic")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., TraceTable]:
    """Write rows as a trace and give the table that was read back."""

    def write(
        rows: Iterable[CallRow], metadata: TraceMetadata = PLAIN, name: str = "trace.parquet"
    ) -> TraceTable:
        with TraceWriter(tmp_path / name, metadata, force=True) as writer:
            writer.append(rows)
        assert writer.table is not None
        return writer.table

    return write


@pytest.fixture
def raw_file(tmp_path: Path) -> Callable[..., Path]:
    """Write columns as they are, past the writer and its laws. `columns` replace or add to two good calls."""

    def raw_file(
        columns: dict[str, Any] | None = None,
        drop: tuple[str, ...] = (),
        metadata: bytes | None = PLAIN.to_json(),
        num_rows: int = 2,
    ) -> Path:
        good: dict[str, list[Any]] = {
            "session_id": ["a"] * num_rows,
            "turn": list(range(num_rows)),
            "shared_tokens": [0] * num_rows,
            "prompt_tokens": [100] * num_rows,
            "output_tokens": [10] * num_rows,
            "delay_s": [0.0] * num_rows,
            "trigger": ["user"] * num_rows,
        }
        good.update(columns or {})
        schema = arrow_schema()
        arrays = {}
        for name, values in good.items():
            if name in drop:
                continue
            known = not isinstance(values, pa.Array) and name in schema.names
            arrays[name] = pa.array(values, schema.field(name).type) if known else pa.array(values)
        table = pa.table(arrays)
        path = tmp_path / "raw.parquet"
        pq.write_table(table.replace_schema_metadata({METADATA_KEY: metadata} if metadata else None), path)
        return path

    return raw_file


@pytest.fixture
def run_import(tmp_path: Path) -> Callable[..., TraceTable]:
    """Import sources of a format and give the table."""

    def run_import(kind: str, *sources: Path, limit: int | None = None, salt: str = "") -> TraceTable:
        out = tmp_path / f"{kind}-import.parquet"
        return import_trace(importer(kind), sources, out, ImportOptions(limit, salt), force=True).table

    return run_import


class Weka:
    """Builds WEKA sessions. Ids are position-chained, as in the real files: `ids(5, "b")` extends nothing."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}

    def ids(self, *parts: tuple[int, str]) -> list[int]:
        """Blocks by runs of content: (3, "a"), (2, "b") is three blocks of a, then two of b after it."""
        path, out = "", []
        for count, content in parts:
            for _ in range(count):
                path += content
                out.append(self._numbers.setdefault((path, len(path)), len(self._numbers) + 1))
        return out

    @staticmethod
    def call(t: float, ids: list[int], extra: int = 0, out: int = 50, **fields: Any) -> dict[str, Any]:
        """A request whose prompt is all its blocks and `extra` tokens of the next one."""
        return {
            "t": t,
            "type": "n",
            "model": "claude-opus-4-5-20251101",
            "in": 64 * len(ids) + extra,
            "out": out,
            "hash_ids": ids,
            "input_types": ["tool_result"],
            "output_types": ["tool_use"],
            "stop": "tool_use",
            "api_time": 2.0,
            **fields,
        }

    @staticmethod
    def session(requests: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        return {
            "id": "trace_0001",
            "models": ["claude-opus-4-5-20251101"],
            "block_size": 64,
            "hash_id_scope": "local",
            "tool_tokens": 100,
            "system_tokens": 50,
            "totals": {},
            "requests": requests,
            **fields,
        }

    @staticmethod
    def agent(t: float, requests: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        return {
            "type": "subagent",
            "t": t,
            "agent_id": "agent_001",
            "subagent_type": "Explore",
            "duration_ms": None,
            "status": "completed",
            "tool_tokens": 80,
            "system_tokens": 20,
            "requests": requests,
            **fields,
        }


@pytest.fixture
def weka() -> Weka:
    return Weka()


@pytest.fixture
def json_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a value as JSON, or several as one a line."""

    def json_file(*values: Any, name: str = "source.json") -> Path:
        path = tmp_path / name
        path.write_text("\n".join(json.dumps(value) for value in values) + "\n")
        return path

    return json_file


@st.composite
def _legal_rows(draw: st.DrawFn) -> list[CallRow]:
    """Up to twelve calls in up to four sessions that break no law."""
    rows: list[CallRow] = []
    turns: dict[str, int] = {}
    for index in range(draw(st.integers(1, 12))):
        session = f"s{draw(st.integers(0, 3))}"
        turn = turns.get(session, -1) + draw(st.integers(1, 3))
        turns[session] = turn
        prompt, output = draw(st.integers(1, 5000)), draw(st.integers(1, 300))
        fields: dict[str, Any] = {}
        if rows and draw(st.booleans()):
            parent = rows[draw(st.integers(0, index - 1))]
            shared = draw(st.integers(0, min(prompt, parent.prompt_tokens)))
            fields |= {
                "parent_session": parent.session_id,
                "parent_turn": parent.turn,
                "shared_tokens": shared,
            }
            room = min(prompt - shared, parent.output_tokens)
            if shared == parent.prompt_tokens and room:
                fields["shared_output_tokens"] = draw(st.integers(1, room))
        elif draw(st.booleans()):
            fields |= {"group_id": draw(st.sampled_from("gh")), "group_tokens": draw(st.integers(0, prompt))}
        if rows and draw(st.booleans()):
            picked = draw(st.lists(st.integers(0, index - 1), max_size=3, unique=True))
            fields["after"] = tuple(CallRef(rows[i].session_id, rows[i].turn) for i in picked)
        if draw(st.booleans()):
            cut = draw(st.integers(0, output))
            kinds = draw(st.permutations(PHASES))
            fields["phases"] = (Phase(kinds[0], cut), Phase(kinds[1], output - cut))
        rows.append(
            CallRow(
                session_id=session,
                turn=turn,
                prompt_tokens=prompt,
                output_tokens=output,
                max_output_tokens=draw(st.none() | st.integers(output, 9000)),
                delay_s=draw(st.floats(0, 1e6)),
                trigger=draw(st.sampled_from(TRIGGERS)),
                model=draw(st.none() | st.sampled_from(("m1", "m2"))),
                success=draw(st.none() | st.booleans()),
                observed_e2e_s=draw(st.none() | st.floats(0, 1e4)),
                **fields,
            )
        )
    return rows


@pytest.fixture(scope="session")
def legal_rows() -> st.SearchStrategy[list[CallRow]]:
    return _legal_rows()
