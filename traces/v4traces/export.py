"""A trace back as rows, and as Mooncake lines for other tools.

`table_rows` is the inverse of reading: rows written again give the same table. The Mooncake export
turns parent links into block ids of 512 tokens; what it cannot say is less than a block, models,
triggers and observations. Sessions, pauses and joins go into the fields that extended readers know
(`session_id`, `delay`, `request_id`, `wait_for`); plain readers see independent requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4traces.bounds import previous_in_session
from v4traces.files import whole_file
from v4traces.rows import Acceptance, CachedTokens, CallRef, CallRow, Phase
from v4traces.schema import PHASES, TRIGGERS
from v4traces.table import TraceTable

MOONCAKE_BLOCK_TOKENS = 512


class _Links:
    """Names of rows, and what each waits for where that is not simply the turn before."""

    def __init__(self, table: TraceTable) -> None:
        names = table.session_names
        self.refs = [
            CallRef(names[code], turn)
            for code, turn in zip(table.session.tolist(), table.turn.tolist(), strict=True)
        ]
        self.previous = previous_in_session(table).tolist()
        self._offsets, self._rows = table.after_offsets.tolist(), table.after_rows.tolist()

    def unusual_wait(self, row: int) -> list[int] | None:
        """The rows that `row` waits for; None if that is the default."""
        waits = self._rows[self._offsets[row] : self._offsets[row + 1]]
        usual = [self.previous[row]] if self.previous[row] >= 0 else []
        return None if waits == usual else waits


def table_rows(table: TraceTable) -> Iterator[CallRow]:
    """The calls of `table` in order."""
    links = _Links(table)
    whole = {
        "shared_tokens": table.shared_tokens.tolist(),
        "prompt_tokens": table.prompt_tokens.tolist(),
        "output_tokens": table.output_tokens.tolist(),
        "delay_s": table.delay_s.tolist(),
        "trigger": [TRIGGERS[code] for code in table.trigger.tolist()],
        "shared_output_tokens": _numbers(table.shared_output_tokens, table.shared_output_tokens > 0),
        "group_id": _names(table.group, table.group_names),
        "group_tokens": _numbers(table.group_tokens, table.group >= 0),
        "max_output_tokens": _numbers(table.max_output_tokens, table.max_output_tokens >= 0),
        "reasoning_tokens": _numbers(table.reasoning_tokens, table.reasoning_tokens >= 0),
        "priority": _numbers(table.priority, table.priority != 0),
        "success": [None if code < 0 else bool(code) for code in table.success.tolist()],
        "task_id": _names(table.task, table.task_names),
        "tool_class": _names(table.tool_class, table.tool_class_names),
        "snapshot_id": _names(table.snapshot, table.snapshot_names),
        "tool_schema_id": _names(table.tool_schema, table.tool_schema_names),
        "system_id": _names(table.system, table.system_names),
        "environment_id": _names(table.environment, table.environment_names),
        "model": _names(table.model, table.model_names),
        **{
            name: _numbers(getattr(table, name), ~np.isnan(getattr(table, name)))
            for name in ("arrival_s", "tool_latency_s", "observed_ttft_s", "observed_e2e_s")
        },
    }
    parents = table.parent.tolist()
    for row, (ref, parent) in enumerate(zip(links.refs, parents, strict=True)):
        waits = links.unusual_wait(row)
        yield CallRow(
            session_id=ref.session_id,
            turn=ref.turn,
            parent_session=links.refs[parent].session_id if parent >= 0 else None,
            parent_turn=links.refs[parent].turn if parent >= 0 else None,
            after=None if waits is None else tuple(links.refs[other] for other in waits),
            phases=_phases(table, row),
            acceptance=_acceptance(table, row),
            observed_cached_tokens=_cached(table, row),
            **{name: values[row] for name, values in whole.items()},
        )


def _numbers(values: NDArray[Any], present: NDArray[np.bool_]) -> list[Any]:
    if not present.any():
        return [None] * values.size
    pairs = zip(values.tolist(), present.tolist(), strict=True)
    return [value if given else None for value, given in pairs]


def _names(codes: NDArray[np.int32], names: list[str]) -> list[str | None]:
    return [names[code] if code >= 0 else None for code in codes.tolist()]


def _phases(table: TraceTable, row: int) -> tuple[Phase, ...] | None:
    span = range(int(table.phase_offsets[row]), int(table.phase_offsets[row + 1]))
    return tuple(Phase(PHASES[table.phase_kind[at]], int(table.phase_tokens[at])) for at in span) or None


def _acceptance(table: TraceTable, row: int) -> tuple[Acceptance, ...] | None:
    entries = table.acceptance.get(row)
    return None if entries is None else tuple(Acceptance(kind, rates) for kind, rates in entries)


def _cached(table: TraceTable, row: int) -> CachedTokens | None:
    device = int(table.observed_device_tokens[row])
    if device < 0:
        return None
    return CachedTokens(device, int(table.observed_host_tokens[row]), int(table.observed_storage_tokens[row]))


def mooncake_lines(table: TraceTable) -> Iterator[str]:
    """One JSON object a call, in the order of the trace. Times are whole milliseconds."""
    links = _Links(table)
    blocks = _BlockIds(table)
    sessions = np.bincount(table.session)[table.session].tolist()
    prompts, outputs = table.prompt_tokens.tolist(), table.output_tokens.tolist()
    arrivals, delays = table.arrival_s.tolist(), table.delay_s.tolist()
    awaited = set(_awaited(links, table.n))
    for row, ref in enumerate(links.refs):
        line: dict[str, Any] = {}
        if arrivals[row] == arrivals[row]:
            line["timestamp"] = round(arrivals[row] * 1e3)
        waits = links.unusual_wait(row)
        # A lone request with a time needs no session: that is the plain format.
        if sessions[row] > 1 or "timestamp" not in line or waits is not None:
            line["session_id"] = ref.session_id
        if delays[row]:
            line["delay"] = round(delays[row] * 1e3)
        if row in awaited:
            line["request_id"] = f"r{row}"
        if waits is not None:
            line["wait_for"] = [f"r{other}" for other in waits]
        line["input_length"] = prompts[row]
        line["output_length"] = outputs[row]
        line["hash_ids"] = blocks.of(row)
        yield json.dumps(line)


def _awaited(links: _Links, n: int) -> Iterator[int]:
    for row in range(n):
        yield from links.unusual_wait(row) or ()


class _BlockIds:
    """Block ids by parent links: what is shared has equal ids, all else has ids of its own."""

    def __init__(self, table: TraceTable) -> None:
        self._parent, self._shared = table.parent.tolist(), table.shared_tokens.tolist()
        self._prompt = table.prompt_tokens.tolist()
        self._group, self._group_tokens = table.group.tolist(), table.group_tokens.tolist()
        # Rows are forgotten after their last child, so that memory is that of the open sessions.
        self._last_child = np.full(table.n, -1, dtype=np.int64)
        children = np.flatnonzero(table.parent >= 0)
        np.maximum.at(self._last_child, table.parent[children], children)
        self._held: dict[int, list[int]] = {}
        self._group_ids: dict[int, list[int]] = {}
        self._next = 0

    def of(self, row: int) -> list[int]:
        """The ids of `row`, which must be asked for in order; the last, partial block has one too."""
        parent, prompt = self._parent[row], self._prompt[row]
        count = -(-prompt // MOONCAKE_BLOCK_TOKENS)
        ids: list[int] = []
        if parent >= 0:
            shared = self._shared[row]
            same = shared == prompt == self._prompt[parent]
            ids = self._held[parent][: count if same else shared // MOONCAKE_BLOCK_TOKENS]
            if self._last_child[parent] == row:
                del self._held[parent]
        elif self._group[row] >= 0:
            ids = self._of_group(self._group[row], self._group_tokens[row] // MOONCAKE_BLOCK_TOKENS)
        ids = ids + self._fresh(count - len(ids))
        if self._last_child[row] >= 0:
            self._held[row] = ids
        return ids

    def _of_group(self, group: int, count: int) -> list[int]:
        known = self._group_ids.setdefault(group, [])
        known += self._fresh(count - len(known))
        return known[:count]

    def _fresh(self, count: int) -> list[int]:
        first, self._next = self._next, self._next + max(count, 0)
        return list(range(first, self._next))


def write_mooncake(table: TraceTable, path: Path, *, force: bool = False) -> int:
    """Write `mooncake_lines` to `path`, whole or not at all; the number of lines."""
    with whole_file(path, force=force) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in mooncake_lines(table))
    return table.n
