"""The calls of a run as numpy columns: what every metric and every law reads.

`RunResult.calls` is columnar already; this view turns its lists into arrays once, codes its texts and
names the moments. Nothing is computed here that a column states.

Units: `_ns` integer nanoseconds of simulated time, `_tokens` tokens. -1 = not reached or not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from v4sim.errors import RunError

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

INT_COLUMNS: tuple[str, ...] = (
    "row",
    "session",
    "instance",
    "turn",
    "replica",
    "rank",
    "trigger",
    "prompt_tokens",
    "output_tokens",
    "hit_tokens",
    "hit_host_tokens",
    "hit_storage_tokens",
    "computed_tokens",
    "recomputed_tokens",
    "bound_tokens",
    "stale_tokens",
    "lost_swa_tokens",
    "ready_ns",
    "sent_ns",
    "queued_ns",
    "admit_ns",
    "first_token_ns",
    "first_seen_ns",
    "last_token_ns",
    "retractions",
    "verify_steps",
    "drafts_offered",
    "drafts_accepted",
    "wait_queue_ns",
    "wait_kv_ns",
    "wait_swa_ns",
    "wait_slots_ns",
    "wait_budget_ns",
    "gpu_share_ns",
    "kv_peak_tokens",
)
TEXT_COLUMNS: tuple[str, ...] = ("event_class", "done")
_KEY_LIMIT = 1 << 62
DONE: tuple[str, ...] = ("completed", "rejected", "aborted", "running", "queued")


@dataclass(frozen=True, slots=True, eq=False)
class Coded(Sequence[str]):
    """A column of few distinct texts: codes into `names`, which are in order of first appearance."""

    codes: NDArray[Any]
    names: tuple[str, ...]

    @classmethod
    def of(cls, texts: Sequence[str]) -> Coded:
        if isinstance(texts, Coded):
            return texts
        names = tuple(dict.fromkeys(texts))
        code = {name: number for number, name in enumerate(names)}
        return cls(np.fromiter(map(code.__getitem__, texts), np.int32, len(texts)), names)

    @classmethod
    def by_appearance(cls, codes: NDArray[Any], names: Sequence[str]) -> Coded:
        """The same texts, with codes into any `names` numbered anew."""
        used, first = np.unique(codes, return_index=True)
        used = used[np.argsort(first)]
        renumbered = np.zeros(len(names), dtype=codes.dtype)
        renumbered[used] = np.arange(len(used))
        return cls(renumbered[codes], tuple(names[code] for code in used.tolist()))

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Coded: ...
    def __getitem__(self, at: int | slice) -> str | Coded:
        if isinstance(at, slice):
            return Coded(self.codes[at], self.names)
        return self.names[int(self.codes[at])]

    def __iter__(self) -> Iterator[str]:
        return map(self.names.__getitem__, self.codes.tolist())

    def equals(self, name: str) -> Bools:
        if name not in self.names:
            return np.zeros(len(self.codes), dtype=np.bool_)
        return np.asarray(self.codes == self.names.index(name))


@dataclass(frozen=True, slots=True)
class Calls:
    """One entry per injected call, in order of injection. `calls["sent_ns"]` is a column."""

    columns: Mapping[str, NDArray[Any]] = field(repr=False)  # as narrow as the run keeps them
    event_class: Coded = field(repr=False)
    done: Coded = field(repr=False)

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Calls:
        missing = [name for name in (*INT_COLUMNS, *TEXT_COLUMNS) if name not in columns]
        if missing:
            raise RunError(
                f"the run's calls have no column {missing[0]!r}; a run has all of "
                f"{', '.join((*INT_COLUMNS, *TEXT_COLUMNS))}. Replay the trace with this version."
            )
        ints = {name: np.asarray(columns[name]) for name in INT_COLUMNS}
        calls = cls(ints, Coded.of(columns["event_class"]), Coded.of(columns["done"]))
        lengths = {len(column) for column in ints.values()} | {
            len(calls.event_class.codes),
            len(calls.done.codes),
        }
        if len(lengths) > 1:
            raise RunError(
                f"the run's call columns have different lengths ({sorted(lengths)}); replay again."
            )
        return calls

    def __len__(self) -> int:
        return len(self.columns["row"])

    def __getitem__(self, name: str) -> Int64s:
        return self.columns[name].astype(np.int64, copy=False)

    @property
    def completed(self) -> Bools:
        return self.done.equals("completed")

    @property
    def admitted(self) -> Bools:
        return self["admit_ns"] >= 0

    @property
    def hits_all_tiers(self) -> Int64s:
        """Prompt tokens not computed at first admission; 0 for a call that was never admitted."""
        hits = self["hit_tokens"] + self["hit_host_tokens"] + self["hit_storage_tokens"]
        return np.where(self.admitted, hits, 0)

    def find(self, rows: Int64s, copies: Int64s) -> Int64s:
        """Index of the call of each (trace row, replayed copy); -1 where there is none."""
        if not len(self):
            return np.full(len(rows), -1, dtype=np.int64)
        stride = int(max(self["row"].max(), rows.max(initial=0))) + 1
        keys = self["row"] + self["instance"] * stride
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        wanted = rows + copies * stride
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where((rows >= 0) & (keys[at] == wanted), order[at], -1)

    def dense(self, *names: str) -> tuple[Int64s, int]:
        """Codes 0..k-1 of the distinct combinations of columns, in order of first appearance; and k."""
        return dense_codes(*(self[name] for name in names))


def dense_codes(*columns: NDArray[Any]) -> tuple[Int64s, int]:
    """Number the distinct tuples of some columns by first appearance; returns codes and their count."""
    key, most = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        low = int(column.min()) if len(column) else 0
        span = int(column.max()) - low + 1 if len(column) else 1
        if most * span > _KEY_LIMIT:
            distinct, key = np.unique(key, return_inverse=True)
            most = len(distinct)
        key = key * span + (column.astype(np.int64) - low)
        most *= span
    distinct, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    order = np.empty(len(distinct), dtype=np.int64)
    order[np.argsort(first, kind="stable")] = np.arange(len(distinct))
    return order[inverse], len(distinct)
