"""How many sessions there are: the workload between a trace and the engine.

A trace says what sessions do. A workload says how many run: closed loop (`sessions` kept alive, the
next starts when one ends) or open loop (`arrivals`: as recorded, or Poisson at a rate of root
sessions per second). A *family* is a root session with everything that waits for it or that it waits
for (its sub-agents): the unit that starts and ends. Families are replayed in the order of the trace,
`copies` times over; each copy has its own content but shares group prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from v4sim import streams
from v4sim.clock import NS_PER_S, to_ns
from v4sim.errors import ConfigError

if TYPE_CHECKING:
    from v4traces import TraceTable

DEFAULT_SESSIONS_PER_RANK = 8


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """Either `sessions` (closed loop) or `arrivals` ("trace" or "poisson" with `rate_per_s`).

    `shuffle` draws another order in which a closed loop starts its sessions: the same work, met otherwise.
    """

    sessions: int | None = None
    arrivals: str | None = None
    rate_per_s: float | None = None
    window: str | None = None
    time_scale: float = 1.0
    limit_calls: int | None = None
    copies: int = 1
    shuffle: int | None = None

    def __post_init__(self) -> None:
        if self.sessions is not None and self.arrivals is not None:
            raise ConfigError(
                "--sessions and --arrivals exclude each other: a closed loop keeps sessions alive, "
                "an open loop lets them arrive. Give one of them."
            )
        if self.sessions is not None and self.sessions < 1:
            raise ConfigError(f"--sessions {self.sessions}: at least one session must be alive.")
        if self.arrivals not in (None, "trace", "poisson"):
            raise ConfigError(f"--arrivals {self.arrivals!r}: give `trace` or `poisson:RATE`.")
        if self.arrivals == "poisson" and not (self.rate_per_s and 0 < self.rate_per_s < float("inf")):
            raise ConfigError(
                f"--arrivals poisson: the rate {self.rate_per_s!r} must be a positive number of root "
                "sessions per second, as in poisson:0.5."
            )
        if not 0 < self.time_scale < float("inf"):
            raise ConfigError(f"time scale {self.time_scale!r}: it must be a positive number.")
        if self.copies < 1:
            raise ConfigError(f"copies {self.copies}: at least one.")
        if self.shuffle is not None and self.arrivals is not None:
            raise ConfigError("sessions that arrive at times of their own cannot be shuffled; leave one out.")

    def settled(self, table: TraceTable, num_ranks: int) -> tuple[WorkloadOptions, list[str]]:
        """These options with the loop chosen where the user did not, and what was assumed."""
        if self.sessions is not None or self.arrivals == "poisson":
            return self, []
        timed = bool(np.isfinite(table.arrival_s).any())
        if self.arrivals == "trace" and not timed:
            raise ConfigError(
                f"--arrivals trace: {table.path} has no arrival times (column arrival_s); "
                "use --sessions N to keep N sessions alive, or --arrivals poisson:RATE."
            )
        if timed:
            note = "Sessions arrive at the trace's own times (--arrivals trace)."
            return replace(self, arrivals="trace"), [] if self.arrivals else [note]
        families = len(families_of(table))
        sessions = max(1, min(families, DEFAULT_SESSIONS_PER_RANK * num_ranks))
        full = sessions == DEFAULT_SESSIONS_PER_RANK * num_ranks
        reason = f"{DEFAULT_SESSIONS_PER_RANK} per rank" if full else "all that the trace has"
        note = (
            f"The trace has no arrival times, so {sessions} sessions are kept alive "
            f"(--sessions {sessions}): {reason}."
        )
        return replace(self, sessions=sessions), [note]


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """A root session and what hangs on it. `rows` ascend."""

    number: int
    rows: NDArray[np.int64]


def families_of(table: TraceTable) -> list[Family]:
    """Families in order of their first row; sessions belong together if a call waits for one of the other."""
    root = list(range(len(table.session_names)))

    def find(session: int) -> int:
        while root[session] != session:
            root[session] = root[root[session]]
            session = root[session]
        return session

    waiting = np.repeat(np.arange(table.n), np.diff(table.after_offsets))
    mine, theirs = table.session[waiting], table.session[table.after_rows]
    crossing = mine != theirs
    for a, b in zip(mine[crossing].tolist(), theirs[crossing].tolist(), strict=True):
        a, b = find(a), find(b)
        root[max(a, b)] = min(a, b)
    if not table.n:
        return []
    family = np.array([find(session) for session in range(len(root))], dtype=np.int64)[table.session]
    _, first, member = np.unique(family, return_index=True, return_inverse=True)
    order = np.argsort(first[member], kind="stable")  # by first row of the family, rows ascending
    cuts = np.cumsum(np.bincount(member)[np.argsort(first)])[:-1]
    return [Family(number, rows) for number, rows in enumerate(np.split(order, cuts))]


def offsets_ns(families: list[Family], table: TraceTable, time_scale: float) -> NDArray[np.int64]:
    """Per row: how long after its family begins a call is due that waits for nothing but its own time."""
    due = np.isfinite(table.arrival_s) & (np.diff(table.after_offsets) == 0)
    first = np.empty(table.n, dtype=np.int64)
    for family in families:
        first[family.rows] = family.rows[0]
    due &= np.isfinite(table.arrival_s[first])
    at = np.rint(np.where(due, table.arrival_s, 0.0) * time_scale * NS_PER_S).astype(np.int64)
    begin = np.rint(np.where(due, table.arrival_s[first], 0.0) * time_scale * NS_PER_S).astype(np.int64)
    offsets: NDArray[np.int64] = np.maximum(at - begin, 0)
    return offsets


def starts(
    families: list[Family], table: TraceTable, options: WorkloadOptions, seed: int
) -> Iterator[tuple[int | None, int, Family]]:
    """(start instant or None for "when one ends", copy, family) in order of starting."""
    if options.arrivals == "trace":
        begin = float(np.nanmin(table.arrival_s))  # also of families without a time of their own
        timed = []
        for family in families:
            arrival = float(table.arrival_s[family.rows[0]])
            at = to_ns((arrival if np.isfinite(arrival) else begin) * options.time_scale)
            timed.append((at, family.number, family))
        timed.sort(key=lambda entry: entry[:2])
        first = timed[0][0] if timed else 0
        span = timed[-1][0] - first if timed else 0
        for copy in range(options.copies):
            for at, _, family in timed:
                yield at - first + copy * span, copy, family
    elif options.arrivals == "poisson":
        assert options.rate_per_s is not None
        key = streams.mix(seed, streams.ARRIVAL)
        at_s = 0.0
        number = 0
        for copy in range(options.copies):
            for family in families:
                at_s += -float(np.log1p(-streams.uniform(key, number))) / options.rate_per_s
                number += 1
                yield to_ns(at_s), copy, family
    else:
        order = families
        if options.shuffle is not None:
            rng = np.random.default_rng([options.shuffle, 0x0DE4])
            order = [families[number] for number in rng.permutation(len(families)).tolist()]
        for copy in range(options.copies):
            for family in order:
                yield None, copy, family
