"""What kind of event a call is to its user: the classes that TTFT is reported by.

Decided from the trace alone, but for the last two, which depend on what the cache still had:

cold         starts a session and extends nothing (a group's common prefix does not count)
subagent     first call of a sub-agent
fork         continues a call of another session, or one that another call had already continued
rollback     continues an earlier point of its own session than the last turn's end
resume_tool  appends to its session after a tool returned
resume_user  appends to its session after a person wrote, or was retried
warm         appends for another reason
recompute    would extend a prefix, but the cache had less than half of it
host_restore, storage_restore  part of the prefix came from that tier
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from v4traces.schema import TRIGGERS

if TYPE_CHECKING:
    from v4traces import TraceTable

EVENT_CLASSES = (
    "cold",
    "warm",
    "resume_tool",
    "resume_user",
    "fork",
    "rollback",
    "subagent",
    "recompute",
    "host_restore",
    "storage_restore",
)
CODE = {name: code for code, name in enumerate(EVENT_CLASSES)}


def classify(table: TraceTable, slack_tokens: int) -> NDArray[np.int8]:
    """Class code per row; a shrink of up to `slack_tokens` (one page) is not a rollback."""
    parent = table.parent
    has_parent = parent >= 0
    above = np.where(has_parent, parent, 0)
    codes = np.full(table.n, CODE["cold"], dtype=np.int8)
    by_trigger = np.full(len(TRIGGERS), CODE["warm"], dtype=np.int8)
    by_trigger[TRIGGERS.index("tool_result")] = CODE["resume_tool"]
    for name in ("user", "resume", "retry"):
        by_trigger[TRIGGERS.index(name)] = CODE["resume_user"]
    codes[has_parent] = by_trigger[table.trigger[has_parent]]
    same_session = table.session == table.session[above]
    shrinks = table.shared_tokens + slack_tokens < table.prompt_tokens[above]
    codes[has_parent & same_session & shrinks] = CODE["rollback"]
    # The first child of a parent continues it; every later one is another attempt.
    children = np.flatnonzero(has_parent)
    _, first = np.unique(parent[children], return_index=True)
    later = np.ones(children.size, dtype=np.bool_)
    later[first] = False
    is_later = np.zeros(table.n, dtype=np.bool_)
    is_later[children[later]] = True
    codes[has_parent & ~shrinks & (is_later | ~same_session)] = CODE["fork"]
    codes[(table.trigger == TRIGGERS.index("subagent")) & table.is_first_of_session()] = CODE["subagent"]
    return codes


def after_admission(
    code: int, bound_tokens: int, hit_tokens: int, host_tokens: int, storage_tokens: int
) -> int:
    """The class once it is known where the prefix came from."""
    if storage_tokens > 0:
        return CODE["storage_restore"]
    if host_tokens > 0:
        return CODE["host_restore"]
    if code != CODE["cold"] and 2 * hit_tokens < bound_tokens:
        return CODE["recompute"]
    return code
