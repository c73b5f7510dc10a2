"""The laws that every trace obeys; each is a mask over rows, so that a million rows take moments.

A law that is broken yields one `Finding` with the first row and the count. `read_table` raises the
first error; `v4traces check` shows all of them. What is merely suspicious is in `check.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4traces.table import TraceTable

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Finding:
    """One law that rows of a trace break, or one thing about a trace that a user should know."""

    severity: str  # "error" or "warning"
    law: str
    message: str
    row: int = -1  # first row concerned, -1 if it is about the whole file
    column: str = ""
    count: int = 1  # rows concerned


@dataclass(frozen=True, slots=True)
class _Law:
    name: str
    column: str
    broken: Callable[[TraceTable], Mask]
    says: Callable[[TraceTable, int], str]
    way_out: str


def _values(name: str) -> Callable[[TraceTable], Any]:
    return lambda table: getattr(table, name)


def _at_least(column: str, least: int, way_out: str) -> _Law:
    return _Law(
        name=f"{column}_in_range",
        column=column,
        broken=lambda t: _values(column)(t) < least,
        says=lambda t, r: f"the value is {_values(column)(t)[r]}; it must be at least {least}",
        way_out=way_out,
    )


def _seconds(column: str, optional: bool) -> _Law:
    def broken(table: TraceTable) -> Mask:
        values = _values(column)(table)
        wrong = ~(np.isfinite(values) & (values >= 0))
        return np.asarray(wrong & ~np.isnan(values) if optional else wrong)

    return _Law(
        name=f"{column}_is_a_time",
        column=column,
        broken=broken,
        says=lambda t, r: (
            f"the value is {_values(column)(t)[r]}; a time in seconds is finite and not negative"
        ),
        way_out="Import the source again, or set it to 0 if it is not known.",
    )


def _parent_value(table: TraceTable, column: str) -> NDArray[np.int64]:
    values: NDArray[np.int64] = _values(column)(table)
    return np.where(table.parent >= 0, values[table.parent], 0)


def _turns_fall(table: TraceTable) -> Mask:
    broken = np.zeros(table.n, dtype=np.bool_)
    order = np.argsort(table.session, kind="stable")
    same = table.session[order][1:] == table.session[order][:-1]
    broken[order[1:]] = same & (table.turn[order][1:] <= table.turn[order][:-1])
    return broken


def _arrival_falls(table: TraceTable) -> Mask:
    rows = np.flatnonzero(~np.isnan(table.arrival_s))
    broken = np.zeros(table.n, dtype=np.bool_)
    broken[rows[1:]] = np.diff(table.arrival_s[rows]) < 0
    return broken


def _waits_twice(table: TraceTable) -> Mask:
    owner = np.repeat(np.arange(table.n), np.diff(table.after_offsets))
    order = np.lexsort((table.after_rows, owner))
    owner, target = owner[order], table.after_rows[order]
    broken = np.zeros(table.n, dtype=np.bool_)
    broken[owner[1:][(owner[1:] == owner[:-1]) & (target[1:] == target[:-1])]] = True
    return broken


def _phase_sum(table: TraceTable) -> NDArray[np.int64]:
    total = np.zeros(table.phase_tokens.size + 1, dtype=np.int64)
    np.cumsum(table.phase_tokens, out=total[1:])
    return total[table.phase_offsets[1:]] - total[table.phase_offsets[:-1]]


def _has_phases(table: TraceTable) -> Mask:
    return np.diff(table.phase_offsets) > 0


def _negative_phase(table: TraceTable) -> Mask:
    broken = np.zeros(table.n, dtype=np.bool_)
    at = np.flatnonzero(table.phase_tokens < 0)
    broken[np.searchsorted(table.phase_offsets, at, side="right") - 1] = True
    return broken


_LAWS: tuple[_Law, ...] = (
    _at_least("turn", 0, "Number the turns of a session from 0."),
    _at_least("prompt_tokens", 1, "A call without a prompt is no call: drop it."),
    _at_least("output_tokens", 1, "A call yields at least one token: drop it or write 1."),
    _at_least("shared_tokens", 0, "Write 0 for a prompt that shares nothing."),
    _at_least("shared_output_tokens", 0, "Write null if nothing of the output follows."),
    _at_least("group_tokens", 0, "Write null for a call without a group."),
    _seconds("delay_s", optional=False),
    _seconds("arrival_s", optional=True),
    _seconds("tool_latency_s", optional=True),
    _seconds("observed_ttft_s", optional=True),
    _seconds("observed_e2e_s", optional=True),
    _Law(
        "turns_ascend",
        "turn",
        _turns_fall,
        lambda t, r: (
            "the turn is not above that of the session's row before it; turns of a session ascend"
            " in the order of the file"
        ),
        "Sort the rows of each session and number every call once.",
    ),
    _Law(
        "shared_needs_parent",
        "shared_tokens",
        lambda t: (t.parent < 0) & (t.shared_tokens > 0),
        lambda t, r: f"{t.shared_tokens[r]} tokens are shared with a parent, but the call has none",
        "Name the parent, or write 0 (prefixes common to roots go to group_id).",
    ),
    _Law(
        "shared_within_prompt",
        "shared_tokens",
        lambda t: t.shared_tokens > t.prompt_tokens,
        lambda t, r: f"{t.shared_tokens[r]} tokens are shared, but the prompt has {t.prompt_tokens[r]}",
        "Shared tokens are a prefix of this prompt: write at most its length.",
    ),
    _Law(
        "shared_within_parent",
        "shared_tokens",
        lambda t: (t.parent >= 0) & (t.shared_tokens > _parent_value(t, "prompt_tokens")),
        lambda t, r: (
            f"{t.shared_tokens[r]} tokens are shared with {t.label(int(t.parent[r]))}, whose prompt has"
            f" {t.prompt_tokens[t.parent[r]]}"
        ),
        "Shared tokens are a prefix of the parent's prompt too; what follows of its output goes to"
        " shared_output_tokens.",
    ),
    _Law(
        "shared_output_follows_whole_prompt",
        "shared_output_tokens",
        lambda t: (t.shared_output_tokens > 0) & (t.shared_tokens != _parent_value(t, "prompt_tokens")),
        lambda t, r: (
            f"{t.shared_output_tokens[r]} tokens of the parent's output follow, but only"
            f" {t.shared_tokens[r]} of its prompt are shared, so the output cannot stand at the same position"
        ),
        "Write null unless the whole prompt of the parent is shared.",
    ),
    _Law(
        "shared_output_within_parent",
        "shared_output_tokens",
        lambda t: t.shared_output_tokens > np.where(t.parent >= 0, _parent_value(t, "output_tokens"), 0),
        lambda t, r: f"{t.shared_output_tokens[r]} output tokens are shared, more than the parent produced",
        "Write at most the parent's output_tokens.",
    ),
    _Law(
        "shared_sum_within_prompt",
        "shared_output_tokens",
        lambda t: t.shared_tokens + t.shared_output_tokens > t.prompt_tokens,
        lambda t, r: (
            f"{t.shared_tokens[r]} prompt and {t.shared_output_tokens[r]} output tokens of the parent"
            f" are shared, but this prompt has only {t.prompt_tokens[r]}"
        ),
        "Cut shared_output_tokens to what this prompt holds.",
    ),
    _Law(
        "group_is_for_roots",
        "group_id",
        lambda t: (t.group >= 0) & (t.parent >= 0),
        lambda t, r: (
            f"the call is in group {t.group_names[t.group[r]]!r} and also extends"
            f" {t.label(int(t.parent[r]))}; only a call without a parent can be in a group"
        ),
        "Drop group_id and group_tokens of calls with a parent.",
    ),
    _Law(
        "group_within_prompt",
        "group_tokens",
        lambda t: t.group_tokens > t.prompt_tokens,
        lambda t, r: f"the group covers {t.group_tokens[r]} tokens, but the prompt has {t.prompt_tokens[r]}",
        "Write at most the length of the prompt.",
    ),
    _Law(
        "max_output_covers_output",
        "max_output_tokens",
        lambda t: (t.max_output_tokens >= 0) & (t.max_output_tokens < t.output_tokens),
        lambda t, r: f"the limit is {t.max_output_tokens[r]}, but the call produced {t.output_tokens[r]}",
        "The limit is what the client asked for: at least the output.",
    ),
    _Law(
        "reasoning_within_output",
        "reasoning_tokens",
        lambda t: t.reasoning_tokens > t.output_tokens,
        lambda t, r: f"{t.reasoning_tokens[r]} tokens of reasoning in an output of {t.output_tokens[r]}",
        "Reasoning tokens are part of the output.",
    ),
    _Law(
        "phases_sum_to_output",
        "phases",
        lambda t: _has_phases(t) & (_phase_sum(t) != t.output_tokens),
        lambda t, r: f"the phases hold {_phase_sum(t)[r]} tokens, the output {t.output_tokens[r]}",
        "Phases cover the whole output in order; write null if they are not known.",
    ),
    _Law(
        "phases_not_negative",
        "phases",
        _negative_phase,
        lambda t, r: "a phase has a negative number of tokens",
        "Write only phases that have tokens.",
    ),
    _Law(
        "arrival_is_for_roots",
        "arrival_s",
        lambda t: ~np.isnan(t.arrival_s) & (np.diff(t.after_offsets) > 0),
        lambda t, r: (
            "the call has an absolute arrival and also waits for another call; it must be one or the other"
        ),
        "Keep arrival_s on calls that wait for nothing and turn the rest into delay_s.",
    ),
    _Law(
        "waits_once",
        "after",
        _waits_twice,
        lambda t, r: "the call waits for the same call twice",
        "Name every awaited call once.",
    ),
    _Law(
        "arrivals_ascend",
        "arrival_s",
        _arrival_falls,
        lambda t, r: f"the call arrives at {t.arrival_s[r]} s, before one that stands earlier in the file",
        "Sort sessions with absolute times by arrival.",
    ),
)


def broken_laws(table: TraceTable) -> Iterator[Finding]:
    """Every law that `table` breaks, in a fixed order."""
    for law in _LAWS:
        mask = law.broken(table)
        count = int(np.count_nonzero(mask))
        if not count:
            continue
        row = int(np.argmax(mask))
        more = f" ({count} rows break this law.)" if count > 1 else ""
        yield Finding(
            severity="error",
            law=law.name,
            message=f"{table.path}, {table.label(row)}, column {law.column!r}: {law.says(table, row)}."
            f" {law.way_out}{more}",
            row=row,
            column=law.column,
            count=count,
        )
