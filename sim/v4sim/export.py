"""A run as input for other runs: `trace.parquet` with the run's own times, and AIPerf-like records.

`export_trace` turns every injected call into a row of a new trace: roots get the absolute time at which
they became ready, every call the delay between ready and sent, so that replaying it with `--arrivals
trace` on the same deployment gives the same calls again. Copies of a session become sessions of their own
(`NAME~1`, ...). What the run measured goes to the `observed_` columns.

To the nanosecond, but for two things. In a closed loop a session starts at the very moment at which another
ends; it is written one nanosecond later, because arrivals come before ends of the same time. And
beyond 26 days a float64 of seconds no longer holds every nanosecond.

`export_records` writes one JSON object per line in the shape and with the names of AIPerf 0.13's
`profile_export.jsonl` (metadata, metrics with value and unit, error). Times there are simulated
nanoseconds since the start of the run, not wall clock.

Leaves out: prompt text (no trace has any); the draws of speculative decoding are keyed by trace row, so
rows must keep their places: they do when no session was replayed more than once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from v4sim.errors import RunError
from v4sim.metrics.calls import INT_COLUMNS, Calls, Int64s
from v4sim.workload import families_of
from v4traces.rows import Acceptance, CachedTokens, CallRef, CallRow, Phase
from v4traces.schema import PHASES, TRIGGERS
from v4traces.table import TraceTable
from v4traces.write import TraceWriter


def export_trace(
    calls: Calls, table: TraceTable, path: Path, *, closed_loop: bool = False, force: bool = False
) -> int:
    """Write the calls of a run as a trace; returns the number of rows.

    `closed_loop` says that the run kept a number of sessions alive, the next starting as one ended.
    """
    if not len(calls):
        raise RunError(f"the run has no calls, so {path.name} would be an empty trace; nothing is written.")
    order = np.lexsort((calls["row"], calls["instance"]))
    note = f"times of a simulated run of {table.path} ({len(calls)} calls)"
    with TraceWriter(path, table.metadata.with_notes(note), force=force) as writer:
        writer.append(_rows(calls, table, order, closed_loop))
    return len(calls)


def export_records(calls: Calls, table: TraceTable, path: Path, *, force: bool = False) -> int:
    """Write AIPerf-like per-call records; returns their number. Whole or not at all."""
    if path.exists() and not force:
        raise RunError(f"{path} already exists and is not overwritten. Use --force, or name another file.")
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            for record in records(calls, table):
                file.write(json.dumps(record, sort_keys=True) + "\n")
        partial.replace(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error}).") from None
    finally:
        partial.unlink(missing_ok=True)
    return len(calls)


@dataclass(frozen=True, slots=True)
class _Names:
    """Session names of copies, none of which is a name in the trace."""

    table: TraceTable
    taken: frozenset[str]

    def __call__(self, session: int, instance: int) -> str:
        name = self.table.session_names[session]
        if instance == 0:
            return name
        mark = "~"
        while f"{name}{mark}{instance}" in self.taken:
            mark += "~"
        return f"{name}{mark}{instance}"


def _rows(calls: Calls, table: TraceTable, order: Int64s, closed_loop: bool) -> Iterator[CallRow]:
    names = _Names(table, frozenset(table.session_names))
    row_of, instance_of = calls["row"].tolist(), calls["instance"].tolist()
    present = set(zip(row_of, instance_of, strict=True))
    ready, sent = calls["ready_ns"].tolist(), calls["sent_ns"].tolist()
    first, last = calls["first_token_ns"].tolist(), calls["last_token_ns"].tolist()
    completed = calls.completed.tolist()
    device, host, storage = (
        calls[name].tolist() for name in ("hit_tokens", "hit_host_tokens", "hit_storage_tokens")
    )
    admitted = calls.admitted.tolist()
    source = _SourceRows(table)
    # A family (see `workload`) starts as one: only its first call has a time of its own.
    starts = {family.rows[0] for family in families_of(table)}
    for i in order.tolist():
        row, instance = row_of[i], instance_of[i]
        after = [(r, instance) for r in source.after(row)]
        parent = int(table.parent[row])
        # A prefix parent that the run never sent cannot be named; the call then shares nothing.
        linked = parent >= 0 and (parent, instance) in present
        yield CallRow(
            session_id=names(int(table.session[row]), instance),
            turn=int(table.turn[row]),
            task_id=source.task(row, instance),
            parent_session=names(int(table.session[parent]), instance) if linked else None,
            parent_turn=int(table.turn[parent]) if linked else None,
            shared_tokens=int(table.shared_tokens[row]) if linked else 0,
            shared_output_tokens=(int(table.shared_output_tokens[row]) or None) if linked else None,
            arrival_s=(ready[i] + (closed_loop and ready[i] > 0)) / 1e9 if row in starts else None,
            after=tuple(CallRef(names(int(table.session[r]), k), int(table.turn[r])) for r, k in after),
            delay_s=(sent[i] - ready[i]) / 1e9,
            observed_cached_tokens=CachedTokens(device[i], host[i], storage[i]) if admitted[i] else None,
            observed_ttft_s=(first[i] - sent[i]) / 1e9 if first[i] >= 0 else None,
            observed_e2e_s=(last[i] - sent[i]) / 1e9 if completed[i] else None,
            **source.unchanged(row),
        )


class _SourceRows:
    """What a row of the source trace keeps in the exported one."""

    def __init__(self, table: TraceTable) -> None:
        self._table = table
        self._offsets: list[int] = table.after_offsets.tolist()
        self._targets: list[int] = table.after_rows.tolist()
        self._phases: list[int] = table.phase_offsets.tolist()

    def after(self, row: int) -> list[int]:
        return self._targets[self._offsets[row] : self._offsets[row + 1]]

    def task(self, row: int, instance: int) -> str | None:
        code = int(self._table.task[row])
        if code < 0:
            return None
        return self._table.task_names[code] + (f"~{instance}" if instance else "")

    def unchanged(self, row: int) -> dict[str, Any]:
        t = self._table
        tool_s = float(t.tool_latency_s[row])
        return {
            "group_id": _name(t.group_names, t.group[row]),
            "group_tokens": int(t.group_tokens[row]) if t.group[row] >= 0 else None,
            "prompt_tokens": int(t.prompt_tokens[row]),
            "output_tokens": int(t.output_tokens[row]),
            "max_output_tokens": _known(t.max_output_tokens[row]),
            "reasoning_tokens": _known(t.reasoning_tokens[row]),
            "trigger": TRIGGERS[t.trigger[row]],
            "tool_class": _name(t.tool_class_names, t.tool_class[row]),
            "tool_latency_s": tool_s if np.isfinite(tool_s) else None,
            "phases": self._phases_of(row),
            "acceptance": self._acceptance_of(row),
            "snapshot_id": _name(t.snapshot_names, t.snapshot[row]),
            "tool_schema_id": _name(t.tool_schema_names, t.tool_schema[row]),
            "system_id": _name(t.system_names, t.system[row]),
            "environment_id": _name(t.environment_names, t.environment[row]),
            "model": _name(t.model_names, t.model[row]),
            "priority": int(t.priority[row]),
            "success": None if t.success[row] < 0 else bool(t.success[row]),
        }

    def _phases_of(self, row: int) -> tuple[Phase, ...] | None:
        span = range(self._phases[row], self._phases[row + 1])
        table = self._table
        return tuple(Phase(PHASES[table.phase_kind[i]], int(table.phase_tokens[i])) for i in span) or None

    def _acceptance_of(self, row: int) -> tuple[Acceptance, ...] | None:
        stated = self._table.acceptance.get(row)
        return tuple(Acceptance(kind, tuple(rates)) for kind, rates in stated) if stated else None


def _name(names: Sequence[str], code: Any) -> str | None:
    return names[int(code)] if code >= 0 else None


def _known(value: Any) -> int | None:
    return int(value) if value >= 0 else None


def records(calls: Calls, table: TraceTable) -> Iterator[dict[str, Any]]:
    """One record per call, in order of injection."""
    names = _Names(table, frozenset(table.session_names))
    number = calls.dense("session", "instance")[0].tolist()
    columns: dict[str, list[int]] = {name: calls[name].tolist() for name in INT_COLUMNS}
    for i, done in enumerate(calls.done):

        def at(name: str, i: int = i) -> int:
            return columns[name][i]

        ended = done == "completed"
        conversation = names(at("session"), at("instance"))
        yield {
            "metadata": {
                "session_num": number[i],
                "x_request_id": f"{conversation}/{at('turn')}",
                "x_correlation_id": conversation,
                "conversation_id": conversation,
                "turn_index": at("turn"),
                "request_start_ns": at("sent_ns"),
                "request_ack_ns": at("queued_ns") if at("queued_ns") >= 0 else None,
                "request_end_ns": at("last_token_ns") if ended else at("sent_ns"),
                "worker_id": f"replica-{at('replica')}-rank-{at('rank')}",
                "record_processor_id": "v4sim",
                "benchmark_phase": "profiling",
                "was_cancelled": done == "aborted",
            },
            "metrics": _metrics(at) if ended else {},
            "error": None if ended else {"type": done, "message": f"the call was {done} when the run ended"},
        }


def _metrics(at: Callable[[str], int]) -> dict[str, Any]:
    """The metrics of a completed call under AIPerf's tags and units."""
    sent, first = at("sent_ns"), at("first_seen_ns")
    last = max(at("last_token_ns"), first)
    outputs = at("output_tokens")
    cached = at("hit_tokens") + at("hit_host_tokens") + at("hit_storage_tokens")
    found = {
        "input_sequence_length": (at("prompt_tokens"), "tokens"),
        "output_sequence_length": (outputs, "tokens"),
        "output_token_count": (outputs, "tokens"),
        "time_to_first_token": ((first - sent) / 1e6, "ms"),
        "request_latency": ((last - sent) / 1e6, "ms"),
        "decode_duration": ((last - first) / 1e6, "ms"),
        "usage_prompt_cache_read_tokens": (cached, "tokens"),
    }
    if outputs > 1 and last > first:
        found["inter_token_latency"] = ((last - first) / (outputs - 1) / 1e6, "ms")
        found["output_token_throughput_per_user"] = ((outputs - 1) * 1e9 / (last - first), "tokens/sec/user")
    if at("verify_steps") > 0:
        found["spec_decode_steps"] = (at("verify_steps"), "count")
        found["spec_decode_draft_tokens"] = (at("drafts_offered"), "tokens")
        found["spec_decode_accepted_draft_tokens"] = (at("drafts_accepted"), "tokens")
        found["spec_decode_acceptance_length"] = (1 + at("drafts_accepted") / at("verify_steps"), "ratio")
    return {name: {"value": value, "unit": unit} for name, (value, unit) in found.items()}
