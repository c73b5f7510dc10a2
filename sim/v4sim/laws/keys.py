"""How much a call shares with any other call of its cache key, worked out from the links alone.

The independent side of law 4 where `cache.identity` is set: it knows nothing of the tree that the cache uses.
Every call marks all content above it with how far it goes; another call of its key climbs and takes the best
mark. Whichever comes first in the trace, and outputs included, so it is a ceiling for every order of events.
Units: tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from v4sim.laws.base import Evidence
from v4sim.metrics.calls import Int64s

_COLUMN_OF = {
    "snapshot_id": "snapshot",
    "tool_schema_id": "tool_schema",
    "system_id": "system",
    "environment_id": "environment",
}


def shared_within(evidence: Evidence, ids: Sequence[str]) -> Int64s:
    """Per row of the trace."""
    trace = evidence.trace
    keys = list(zip(*(getattr(trace, _COLUMN_OF[name]).tolist() for name in ids), strict=True))
    # The prefix of a group is content that all its roots extend; a copy of a session is another root.
    above = np.where(trace.parent >= 0, trace.parent, np.where(trace.group >= 0, trace.n + trace.group, -1))
    shared = np.where(trace.parent >= 0, trace.shared_tokens + trace.shared_output_tokens, trace.group_tokens)
    links = above.tolist(), shared.tolist(), (trace.prompt_tokens + trace.output_tokens).tolist()
    forward = _best(range(trace.n), keys, *links)
    backward = _best(range(trace.n - 1, -1, -1), keys, *links)
    found = np.maximum(forward, backward)
    if int(evidence.calls["instance"].max(initial=0)) > 0:
        found = np.maximum(found, _to_group(above, shared, trace.n))
    return found


def _best(
    order: Iterable[int], keys: list[tuple[int, ...]], above: list[int], shared: list[int], size: list[int]
) -> Int64s:
    """Per row: the best mark of its key that rows before it in `order` have left on its way up."""
    marks: dict[tuple[int, tuple[int, ...]], int] = {}
    found = np.zeros(len(keys), dtype=np.int64)
    for row in order:
        node, tokens, best = row, size[row], 0
        while node >= 0:
            mark = marks.get((node, keys[row]), 0)
            best = max(best, min(mark, tokens))
            marks[node, keys[row]] = max(mark, tokens)
            if node >= len(keys):
                break
            tokens, node = min(tokens, shared[node]), above[node]
        found[row] = best
    return found


def _to_group(above: Int64s, shared: Int64s, rows: int) -> Int64s:
    """Per row: what it has of its group's prefix."""
    found = np.zeros(rows, dtype=np.int64)
    for row in range(rows):  # parents stand earlier
        up = int(above[row])
        found[row] = (
            min(int(shared[row]), int(found[up]) if up < rows else int(shared[row])) if up >= 0 else 0
        )
    return found
