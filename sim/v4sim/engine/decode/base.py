"""The decoding sequences of a replica: who decodes, where each stands, where the next steps lead.

Each call's walk is known when it starts to decode (its lengths are decided by keyed draws), so the
contexts of all its steps lie in one flat store. A batch is a vector of indices into it: looking k
steps ahead is one gather, moving on is adding k. Rows stand in order of rank, then of joining.

A rank's decode clock counts the steps in which that rank decoded; a call that joined at clock c
is at step `clock - c` of its walk, so moving a rank on moves all its calls.

Two forms with the same integers: `arrays`, in numpy, for the interpreter; `loops`, over flat vectors, for
compiled code, where a loop over a few dozen numbers costs less than one call of numpy.
Units: tokens, integer nanoseconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from v4sim.engine.bursts import Bursts

if TYPE_CHECKING:
    from v4sim.cost.base import StepCost
    from v4sim.engine.call import Call
    from v4sim.engine.rank import Rank

Int64s = NDArray[np.int64]


@dataclass(slots=True, init=False)
class PageRule:
    """How many pages a sequence holds in a decode step.

    They cover its context and `lookahead_tokens`. With `in_flight_tokens` the engine counts them from the
    context before the step in flight, and so many tokens; None: it knows the context.
    """

    page_tokens: int
    lookahead_tokens: int
    in_flight_tokens: int | None

    def __init__(self, page_tokens: int, lookahead_tokens: int, in_flight_tokens: int | None) -> None:
        self.page_tokens = page_tokens
        self.lookahead_tokens = lookahead_tokens
        self.in_flight_tokens = in_flight_tokens

    @property
    def lag(self) -> int:
        """Steps by which the context that is counted lies back."""
        return 0 if self.in_flight_tokens is None else 1


@dataclass(slots=True, init=False)
class Priced:
    """Consecutive decode steps: parts [PARTS, steps], how long each lasts and when it ends [steps]."""

    parts_ns: Int64s
    durations_ns: Int64s
    ends_ns: Int64s

    def __init__(self, parts_ns: Int64s, durations_ns: Int64s, ends_ns: Int64s) -> None:
        self.parts_ns, self.durations_ns, self.ends_ns = parts_ns, durations_ns, ends_ns


class WalkStore(ABC):
    """Contexts of all steps of all running calls, one after the other; compacts itself when mostly garbage.

    Where they lie is the business of the form. The entry before a call's first step stands for the step
    before it.
    """

    def __init__(self, capacity: int = 1 << 16) -> None:
        self.capacity = capacity
        self._used = 0
        self._live: dict[int, Call] = {}
        self.allocate(capacity)

    def put(self, call: Call, before_tokens: int) -> None:
        """Store the contexts of `call.starts` and the final one; sets `call.offset`.

        The entry before them is `before_tokens` short of the first.
        """
        size = call.num_steps + 2
        if self._used + size > self.capacity:
            self._make_room(size)
        call.offset = self._used + 1
        self._used += size
        self._live[call.index] = call
        self.write(call, before_tokens)

    def drop(self, call: Call) -> None:
        del self._live[call.index]

    def _make_room(self, size: int) -> None:
        live = sum([call.num_steps + 2 for call in self._live.values()])
        while live + size > self.capacity // 2:
            self.capacity *= 2
        moves: list[tuple[int, int]] = []  # where a stretch lay, and how long it is
        used = 0
        for call in self._live.values():
            length = call.num_steps + 2
            moves.append((call.offset - 1, length))
            call.offset = used + 1
            used += length
        self.move(moves)
        self._used = used

    @abstractmethod
    def allocate(self, capacity: int) -> None:
        """An empty store."""

    @abstractmethod
    def write(self, call: Call, before_tokens: int) -> None:
        """The contexts of `call`, at its offset."""

    @abstractmethod
    def move(self, moves: list[tuple[int, int]]) -> None:
        """Into a new store of the present capacity: these stretches, one after the other."""

    @abstractmethod
    def contexts(self, call: Call, steps: int) -> Int64s:
        """The contexts before each of a call's first steps."""

    @abstractmethod
    def sizes(self, call: Call, steps: int, width: int) -> list[int]:
        """How many of a call's first steps yielded 1, 2, ... `width` tokens."""


class DecodeBatch(ABC):
    """Who decodes on each rank, and where each stands. Rebuilt when membership changes."""

    def __init__(self, store: WalkStore, num_ranks: int, pages: PageRule) -> None:
        self.store = store
        self.num_ranks = num_ranks
        self.pages = pages
        self.calls: list[Call] = []
        self.rows = [0] * num_ranks

    @abstractmethod
    def rebuild(self, ranks: Sequence[Rank]) -> None:
        """The sequences of these ranks, as they stand now."""

    # -- the next step ----------------------------------------------------------------------------

    @abstractmethod
    def loads(self) -> tuple[list[int], list[int]]:
        """Per rank the sum and the maximum of contexts before the next step."""

    @abstractmethod
    def needs(self, lags: list[int]) -> list[int]:
        """Tokens of the pages that each rank holds in the next step; `lags` as `PageRule.lag`, per rank."""

    # -- the next steps -----------------------------------------------------------------------------

    @abstractmethod
    def held(self, rank: int, steps: int) -> list[int]:
        """Tokens of the pages that a rank holds in each of the next steps."""

    @abstractmethod
    def held_last(self, steps: int) -> list[int]:
        """Those that each rank holds in the last of the next steps."""

    @abstractmethod
    def price(self, cost: StepCost, now_ns: int, steps: int, width: int, first: list[int] | None) -> Priced:
        """The next steps, one after the other from now on; `first`: the parts of the first of several."""

    @abstractmethod
    def bursts(
        self, active: list[int], first_end_ns: int, durations_ns: Int64s, steps: int, width: int
    ) -> Bursts:
        """What the sequences of the `active` ranks yield in the next steps."""

    # -- moving on ----------------------------------------------------------------------------------

    @abstractmethod
    def advance(self, rank: int, steps: int, now_ns: int) -> None:
        """This rank took so many steps, the last of which ends now."""

    def row_range(self, rank: int) -> tuple[int, int]:
        """First row of a rank, and the first behind it."""
        first = sum(self.rows[:rank])
        return first, first + self.rows[rank]
