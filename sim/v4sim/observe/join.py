"""Calls seen to rows of a trace, and a table that replays them at the moments they were sent.

A call belongs to the row of its session and turn. Where the log has no turn, or the trace other names, it
belongs to the only row left of its session (or of the trace) with the same prompt and output, the earliest
where several are alike in one session. A session is replayed as far as it was seen without a hole: a
call whose predecessors were not seen has no cache to hit and no moment to start from.

Roots start when they were sent; every other call waits for what the trace says and then the time the client
took. Outputs are those seen. Left out: calls without a send time, which are counted.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from v4sim.errors import ConfigError
from v4sim.export import export_trace
from v4sim.metrics.calls import INT_COLUMNS, Calls
from v4sim.observe.seen import Seen
from v4traces import TraceTable, read_table

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Joined:
    """The part of a trace that was seen: `seen[i]` is the call of row i of `table`."""

    table: TraceTable
    seen: tuple[Seen, ...]
    unmatched: int  # calls that fit no row
    untimed: int  # rows matched by a call without a send time
    holes: int  # calls after one of their session that was not seen

    @property
    def notes(self) -> list[str]:
        parts = (
            (self.unmatched, "fit no row of the trace"),
            (self.untimed, "have no send time"),
            (self.holes, "follow a call of their session that was not seen"),
        )
        return [f"{count} calls {why} and are left out" for count, why in parts if count]


def join(table: TraceTable, seen: Sequence[Seen]) -> Joined:
    """Match, cut to what can be replayed, and give it the times seen. Raises if nothing is left."""
    rows, unmatched = _match(table, seen)
    timed = {row: call for row, call in rows.items() if call.sent_s is not None and call.e2e_s is not None}
    kept: dict[int, Seen] = {}
    for row in sorted(timed):  # what a row waits for stands earlier in the file
        needs = table.after_rows[table.after_offsets[row] : table.after_offsets[row + 1]]
        if all(int(r) in kept for r in needs):
            kept[row] = timed[row]
    untimed, holes = len(rows) - len(timed), len(timed) - len(kept)
    if not kept:
        raise ConfigError(
            f"none of the {len(seen)} calls of the logs can be replayed: {unmatched} fit no row of "
            f"{table.path}, {untimed} have no send time or latency, {holes} follow a call that was not seen. "
            "Give the trace that was sent, with its session names."
        )
    replayed = _as_sent(table, kept)
    position = {(name, turn): call for (name, turn), call in _named(table, kept)}
    ordered = tuple(
        position[replayed.session_names[s], t]
        for s, t in zip(replayed.session.tolist(), replayed.turn.tolist(), strict=True)
    )
    return Joined(replayed, ordered, unmatched, untimed, holes)


def _named(table: TraceTable, kept: dict[int, Seen]) -> list[tuple[tuple[str, int], Seen]]:
    return [
        ((table.session_names[int(table.session[row])], int(table.turn[row])), call)
        for row, call in kept.items()
    ]


def _match(table: TraceTable, seen: Sequence[Seen]) -> tuple[dict[int, Seen], int]:
    """(row -> call, calls without a row)."""
    names = table.session_names
    of_key = {
        (names[s], t): row
        for row, (s, t) in enumerate(zip(table.session.tolist(), table.turn.tolist(), strict=True))
    }
    found: dict[int, Seen] = {}
    rest: list[Seen] = []
    for call in seen:
        row = None if call.session is None or call.turn is None else of_key.get((call.session, call.turn))
        if row is None or row in found:
            rest.append(call)
        else:
            found[row] = call
    in_session: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    anywhere: dict[tuple[int, int], list[int]] = defaultdict(list)
    sizes = zip(
        table.session.tolist(), table.prompt_tokens.tolist(), table.output_tokens.tolist(), strict=True
    )
    for row, (s, prompt, output) in enumerate(sizes):
        if row not in found:
            in_session[names[s], prompt, output].append(row)
            anywhere[prompt, output].append(row)
    unmatched = 0
    for call in sorted(rest, key=lambda one: one.sent_s or 0.0):
        size = (call.prompt_tokens, call.output_tokens)
        mine = [r for r in in_session.get((call.session or "", *size), ()) if r not in found]
        alike = [r for r in anywhere.get(size, ()) if r not in found]
        if mine:
            found[mine[0]] = call
        elif len(alike) == 1:
            found[alike[0]] = call
        else:
            unmatched += 1
    return found, unmatched


def _as_sent(table: TraceTable, kept: dict[int, Seen]) -> TraceTable:
    """The kept rows as a trace with the moments and outputs seen."""
    first = min(call.sent_s for call in kept.values() if call.sent_s is not None)
    outputs = table.output_tokens.copy()
    rows = np.array(sorted(kept), dtype=np.int64)
    outputs[rows] = [kept[row].output_tokens for row in rows.tolist()]
    parents = np.maximum(table.parent, 0)
    shared = np.minimum(table.shared_output_tokens, outputs[parents])
    columns = {name: np.full(len(rows), -1, dtype=np.int64) for name in INT_COLUMNS}
    columns["instance"] = np.zeros(len(rows), dtype=np.int64)
    columns["row"] = rows
    for name, source in (("session", table.session), ("turn", table.turn)):
        columns[name] = source[rows].astype(np.int64)
    ends: dict[int, int] = {}
    for i, row in enumerate(rows.tolist()):
        call = kept[row]
        assert call.sent_s is not None
        assert call.e2e_s is not None
        sent = round((call.sent_s - first) * _NS)
        needs = table.after_rows[table.after_offsets[row] : table.after_offsets[row + 1]].tolist()
        ready = max((ends[r] for r in needs), default=sent)
        ends[row] = sent + round(call.e2e_s * _NS)
        columns["ready_ns"][i], columns["sent_ns"][i] = min(ready, sent), sent
    calls = Calls.of({**columns, "event_class": [""] * len(rows), "done": ["running"] * len(rows)})
    changed = replace(table, output_tokens=outputs, shared_output_tokens=shared)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seen.parquet"
        export_trace(calls, changed, path)
        return replace(read_table(path), path=table.path)
