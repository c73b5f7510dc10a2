"""What the simulator asks of an engine's own scheduler, in plain numbers.

Calls are named by their number in the run (`Call.index`). One step: the engine decides what it computes and
counts it as computed; `hand_over` later tells what came out. An engine with late results decides the next
step in between.

Units: tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Row(NamedTuple):
    """`tokens` of one call to compute behind `start`; beyond what is known of it they are drafts."""

    number: int
    start: int
    tokens: int


class Batch(NamedTuple):
    """One step: what it computes, in the engine's order, who lost its place, first to last, and for good."""

    rows: Sequence[Row]
    preempted: Sequence[int]
    aborted: Sequence[int] = ()


class Request(NamedTuple):
    """A call as the engine gets to know it. `uid` names its content, a higher `priority` goes first."""

    number: int
    uid: int
    prompt_tokens: int
    max_new_tokens: int
    priority: int


class Engine(Protocol):
    """One rank's scheduler with its cache."""

    @property
    def capacity_tokens(self) -> int:
        """Size of the cache, in tokens of history."""
        ...

    @property
    def used_tokens(self) -> int:
        """What running calls hold of it; prefixes that nobody uses are free, as the engine counts."""
        ...

    @property
    def used_window_tokens(self) -> int:
        """What running calls hold of a pool of windows; 0 where windows share the other one."""
        ...

    def add(self, request: Request) -> None: ...

    def schedule(self) -> Batch:
        """The next step; of an engine that lets prompts go first, its prefill, which may be empty."""
        ...

    def hand_over(self, yields: Mapping[int, int], ended: frozenset[int]) -> None:
        """Results of the oldest batch that has none yet: tokens per call, and whose last they are."""
        ...

    def lost_tokens(self, number: int, hit_tokens: int) -> int:
        """Of a call just admitted with that hit: what its history alone would have allowed beyond it."""
        ...

    def drop(self, number: int) -> None:
        """The call is given up."""
        ...


class PrefillFirst(Engine, Protocol):
    """An engine whose step is a prefill or, where there is none, a decode.

    Between the two, ranks of one group agree: a prefill elsewhere may stop the decode.
    """

    def decode(self) -> Batch:
        """After an empty `schedule`: the decode step. Without rows while somebody decodes: it waits."""
        ...

    def saw_prefill(self) -> None:
        """Some rank of the group computed a prompt in the step that just ended."""
        ...

    def on_idle(self) -> None:
        """The loop goes round, and no rank of the group has anything to run."""
        ...
