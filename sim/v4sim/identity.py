"""State outside the tokens: which calls may share a cached prefix although their tokens are equal.

A trace may name the snapshot, tool schema, system prompt and environment of a call. `cache.identity` says
which of these ids are part of the cache key, as a salt or extra key is in the engines: two calls share
only if their tokens and their keys are equal. An id that a call does not state is a value of its own.

Stale tokens: what token equality alone would share, and the ids that the trace states do not. They are
counted whatever the policy is; the policy decides whether they may be served.
Leaves out: ids that change what a tool answers, since outputs and times come from the trace; and routers that
match tokens without the key (`cache_aware` keys its prefixes as the cache does).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from v4sim.errors import ConfigError
from v4sim.metrics.calls import dense_codes

if TYPE_CHECKING:
    from v4sim.shadows import KeyedTree
    from v4traces import TraceTable

Int64s = NDArray[np.int64]
IDS = ("snapshot_id", "tool_schema_id", "system_id", "environment_id")
NONE = -1


class Content(Protocol):
    """What a prefix index reads: for each content, which other it extends and for how many tokens.

    The calls of a trace come first, in its order; a trace table is one of these. Missing: -1, and 0 tokens.
    """

    @property
    def n(self) -> int: ...
    @property
    def parent(self) -> Int64s: ...
    @property
    def shared_tokens(self) -> Int64s: ...
    @property
    def shared_output_tokens(self) -> Int64s: ...
    @property
    def group(self) -> NDArray[np.int32]: ...
    @property
    def group_tokens(self) -> Int64s: ...
    @property
    def group_names(self) -> list[str]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Identified:
    """The content that calls share under a policy; and per call of the trace, what an endless cache could
    serve under it, and what of the bound by tokens alone is stale."""

    content: Content
    bound_tokens: Int64s
    stale_tokens: Int64s


def stated_ids(table: TraceTable) -> tuple[str, ...]:
    """The ids that any call of the trace has."""
    return tuple(name for name in IDS if (_codes(table, name) >= 0).any())


def identify(table: TraceTable, policy: Sequence[str]) -> Identified:
    """Raises ConfigError for an id of the policy that the trace does not state: it would have no effect."""
    stated = stated_ids(table)
    for name in policy:
        if name not in stated:
            has = f"it has {', '.join(stated)}" if stated else "it has no such id"
            raise ConfigError(
                f"cache.identity names {name}, but no call of {table.path} states one ({has}): leave it out."
            )
    plain = table.bound_tokens()
    if not stated:
        return Identified(table, plain, np.zeros(table.n, dtype=np.int64))
    tree = keyed(table, stated)
    bound = tree.bound_tokens()
    stale = plain - np.minimum(bound, plain)
    if not policy:
        return Identified(table, plain, stale)
    if set(policy) != set(stated):
        tree = keyed(table, policy)
        bound = tree.bound_tokens()
    return Identified(tree.content(), np.minimum(bound, plain), stale)


def _codes(table: TraceTable, name: str) -> NDArray[np.int32]:
    columns = {
        "snapshot_id": table.snapshot,
        "tool_schema_id": table.tool_schema,
        "system_id": table.system,
        "environment_id": table.environment,
    }
    return columns[name]


@dataclass(frozen=True, slots=True, eq=False)
class Keyed:
    """`Content` whose parents have the key of their children: calls, then shadows."""

    n: int
    parent: Int64s
    shared_tokens: Int64s
    shared_output_tokens: Int64s
    group: NDArray[np.int32]
    group_tokens: Int64s
    group_names: list[str]


def keyed(table: TraceTable, ids: Sequence[str]) -> KeyedTree:
    """The content of a trace under the keys that these ids make."""
    from v4sim.shadows import KeyedTree

    key, _ = dense_codes(*(_codes(table, name) for name in ids))
    return KeyedTree(table, key)
