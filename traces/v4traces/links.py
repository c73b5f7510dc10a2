"""Resolves the links of a trace, (session, turn) pairs, to row indices.

Links that name a missing call, or one that does not stand earlier in the file, become findings and
resolve to -1; readers then refuse the file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from v4traces.arrays import filled, from_values
from v4traces.columns import Columns, field_numbers
from v4traces.laws import Finding


class CallIndex:
    """Finds rows by (session, turn) and notes those that are missing or come too late."""

    def __init__(
        self,
        session: NDArray[np.int32],
        names: list[str],
        turn: NDArray[np.int32],
        file: str,
        findings: list[Finding],
    ) -> None:
        self.session, self.turn, self.file, self.findings = session, turn, file, findings
        self._names = from_values(names, pa.string())
        keys = self._key(session.astype(np.int64), turn)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    @staticmethod
    def _key(session: NDArray[np.int64], turn: NDArray[Any]) -> NDArray[np.int64]:
        return np.asarray((session << 32) + turn)

    def resolve(
        self,
        rows: NDArray[np.int64],
        sessions: NDArray[np.int32],
        names: pa.Array,
        turns: NDArray[Any],
        column: str,
    ) -> NDArray[np.int64]:
        """Row index of each named call; -1, and a finding, where `rows` name one that is not earlier."""
        code = filled(pc.index_in(names, self._names), -1, np.int64)
        session = code[sessions] if len(names) else sessions.astype(np.int64)
        keys = self._key(session, turns)
        at = np.minimum(np.searchsorted(self._sorted, keys), self._sorted.size - 1)
        found = self._order[at]
        missing = (self._sorted[at] != keys) | (session < 0)
        late = ~missing & (found >= rows)
        for law, mask, says in (
            (
                "exists",
                missing,
                "which is not in the file. Links name calls of the same file: add it or cut the link",
            ),
            (
                "is_earlier",
                late,
                "which does not stand earlier in the file. Parents and `after` come first: reorder",
            ),
        ):
            if mask.any():
                first = int(np.argmax(mask))
                row = int(rows[first])
                wanted = f"(session {names[int(sessions[first])].as_py()!r}, turn {int(turns[first])})"
                self.findings.append(
                    Finding(
                        "error",
                        f"{column}_{law}",
                        f"{self.file}, row {row}, column {column!r}: it names {wanted}, {says}.",
                        row,
                        column,
                        int(np.count_nonzero(mask)),
                    )
                )
        return np.where(missing | late, -1, found)


def parents(columns: Columns, calls: CallIndex, n: int) -> NDArray[np.int64]:
    parent = np.full(n, -1, dtype=np.int64)
    session, names = columns.codes("parent_session")
    has_turn = columns.present("parent_turn")
    half = (session >= 0) != has_turn
    if half.any():
        row = int(np.argmax(half))
        calls.findings.append(
            Finding(
                "error",
                "parent_is_complete",
                f"{calls.file}, row {row}: only one of parent_session and parent_turn has a value."
                " Write both or neither.",
                row,
                "parent_session",
            )
        )
    rows = np.flatnonzero((session >= 0) & has_turn)
    if rows.size:
        turns = columns.numbers("parent_turn", 0, np.int64)[rows]
        parent[rows] = calls.resolve(
            rows, session[rows], from_values(names, pa.string()), turns, "parent_session"
        )
    return parent


def after(columns: Columns, calls: CallIndex, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """CSR of what each call waits for; null in the file is the session's row before it."""
    given = columns.present("after")
    offsets, flat = columns.lists("after")
    order = np.argsort(calls.session, kind="stable")
    previous = np.full(n, -1, dtype=np.int64)
    same = calls.session[order][1:] == calls.session[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    default_rows = np.flatnonzero(~given & (previous >= 0))
    counts = np.diff(offsets)
    counts[default_rows] = 1
    result = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(counts, out=result[1:])
    rows = np.empty(int(result[-1]), dtype=np.int64)
    rows[result[default_rows]] = previous[default_rows]
    if flat is not None and len(flat):
        owner = np.repeat(np.arange(n), np.diff(offsets))
        place = result[owner] + (np.arange(owner.size) - offsets[owner])
        encoded = pc.struct_field(flat, "session_id").dictionary_encode()
        codes = filled(encoded.indices, -1, np.int32)
        rows[place] = calls.resolve(
            owner, codes, encoded.dictionary, field_numbers(flat, "turn", -1), "after"
        )
    return result, rows
