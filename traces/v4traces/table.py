"""A trace in memory: columns of numpy, names as dictionaries, links as row indices.

Row index, not (session, turn), is the identity everywhere after reading. Missing values are -1 for
integers and codes, NaN for floats. Arrays must be treated as read-only; columns that the file does
not have are views of a single value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from v4traces.rows import TraceMetadata
from v4traces.schema import TRIGGERS

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Int8s = NDArray[np.int8]
Floats = NDArray[np.float64]

_SUBAGENT = TRIGGERS.index("subagent")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TraceTable:
    """All columns have length `n`. CSR pairs: entries of row i are `x[offsets[i]:offsets[i + 1]]`."""

    n: int
    metadata: TraceMetadata
    sha256: str  # of the file's bytes
    path: str  # name of the file, without its folders
    session: Int32s
    session_names: list[str]
    turn: Int32s
    parent: Int64s  # row index, -1 for none
    shared_tokens: Int64s
    shared_output_tokens: Int64s  # 0 where null
    group: Int32s
    group_names: list[str]
    group_tokens: Int64s  # 0 where null
    prompt_tokens: Int64s
    output_tokens: Int64s
    max_output_tokens: Int64s
    reasoning_tokens: Int64s
    arrival_s: Floats
    after_offsets: Int64s
    after_rows: Int64s  # resolved: the default previous turn is in it
    delay_s: Floats
    trigger: Int8s  # index into schema.TRIGGERS
    task: Int32s
    task_names: list[str]
    tool_class: Int32s
    tool_class_names: list[str]
    tool_latency_s: Floats
    phase_offsets: Int64s
    phase_kind: Int8s  # index into schema.PHASES
    phase_tokens: Int64s
    observed_device_tokens: Int64s
    observed_host_tokens: Int64s
    observed_storage_tokens: Int64s
    observed_ttft_s: Floats
    observed_e2e_s: Floats
    snapshot: Int32s
    snapshot_names: list[str]
    tool_schema: Int32s
    tool_schema_names: list[str]
    system: Int32s
    system_names: list[str]
    environment: Int32s
    environment_names: list[str]
    model: Int32s
    model_names: list[str]
    priority: Int32s  # 0 where null
    success: Int8s  # -1 unknown, 0, 1
    acceptance: dict[int, tuple[tuple[str, tuple[float, ...]], ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"TraceTable({self.path!r}, {self.n} calls, {len(self.session_names)} sessions)"

    def label(self, row: int) -> str:
        """How messages name a row."""
        name = self.session_names[int(self.session[row])]
        return f"row {row} (session {name!r}, turn {int(self.turn[row])})"

    def group_bound_tokens(self) -> Int64s:
        """Per row: tokens that an earlier root of the same group also starts with; 0 without a group."""
        bound = np.zeros(self.n, dtype=np.int64)
        rows = np.flatnonzero(self.group >= 0)
        if rows.size == 0:
            return bound
        rows = rows[np.argsort(self.group[rows], kind="stable")]
        base = self.group[rows].astype(np.int64) << 32
        # The running maximum of base + tokens never leaks into the next group, whose base is larger.
        highest = np.maximum.accumulate(base + self.group_tokens[rows])
        earlier = np.zeros(rows.size, dtype=np.int64)
        earlier[1:] = np.maximum(highest[:-1] - base[1:], 0)
        bound[rows] = np.minimum(self.group_tokens[rows], earlier)
        return bound

    def bound_tokens(self) -> Int64s:
        """Per row: what a cache that never forgets could serve of the prompt.

        The parent's prompt and the group count; the parent's output does not, because that it
        returns unchanged is an assumption wherever hashes cover prompts only.
        """
        return np.maximum(np.where(self.parent >= 0, self.shared_tokens, 0), self.group_bound_tokens())

    def is_first_of_session(self) -> NDArray[np.bool_]:
        """Per row: whether no earlier row belongs to its session."""
        first = np.zeros(self.n, dtype=np.bool_)
        if self.n:
            first[np.unique(self.session, return_index=True)[1]] = True
        return first

    def task_of_row(self) -> Int32s:
        """Per row: its task, numbered from 0 in order of first appearance.

        `task_id` where the trace has one. Otherwise a root session together with the sub-agents that
        it started, directly or through others, is one task.
        """
        root = list(range(len(self.session_names)))

        def find(session: int) -> int:
            while root[session] != session:
                root[session] = root[root[session]]
                session = root[session]
            return session

        for row in np.flatnonzero(self.trigger == _SUBAGENT).tolist():
            starts = self.after_rows[self.after_offsets[row] : self.after_offsets[row + 1]].tolist()
            if not starts and self.parent[row] >= 0:
                starts = [int(self.parent[row])]
            mine = find(int(self.session[row]))
            for start in starts:
                other = find(int(self.session[start]))
                root[max(mine, other)] = mine = min(mine, other)
        tasks = np.fromiter((find(s) for s in range(len(root))), np.int64, len(root))[self.session]
        named = self.task >= 0
        tasks = np.where(named, self.task.astype(np.int64) + len(root), tasks)
        _, first, inverse = np.unique(tasks, return_index=True, return_inverse=True)
        rank = np.empty(first.size, dtype=np.int32)
        rank[np.argsort(first, kind="stable")] = np.arange(first.size, dtype=np.int32)
        return rank[inverse]
