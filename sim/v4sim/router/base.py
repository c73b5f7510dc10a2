"""Routing: which rank of which replica gets a call.

A router sees only `Signals`: what each rank looked like at `taken_ns`, refreshed at most once per
period, plus what the router itself has sent since (engines and gateways add their own increments
between snapshots). It never sees the cache, nor how long an answer will be.

Load has two meanings that must not be mixed up (sglang #31170): *active work* is what a rank still
has to do, *resident tokens* is how much history its sessions have there. A rank that holds one idle
800k session is full, not busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Target(NamedTuple):
    replica: int
    rank: int


@dataclass(slots=True, init=False)
class RouteRequest:
    """What a router may know of a call. `uid` names its content, `session` its session copy.

    `home` is where the session's last call went (-1: none) and `home_tokens` the history it has there.
    """

    uid: int
    session: int
    prompt_tokens: int
    home: int
    home_tokens: int

    def __init__(
        self, uid: int, session: int, prompt_tokens: int, home: int = -1, home_tokens: int = 0
    ) -> None:  # written out: a generated one is interpreted in compiled code
        self.uid, self.session, self.prompt_tokens = uid, session, prompt_tokens
        self.home, self.home_tokens = home, home_tokens


class Signals:
    """Per target: requests and prompt tokens in flight, and tokens of history sent there so far."""

    __slots__ = ("requests", "resident", "taken_ns", "tokens")

    def __init__(self, targets: int) -> None:
        self.taken_ns = -1
        self.requests = [0] * targets
        self.tokens = [0] * targets
        self.resident = [0] * targets

    def load(self, kind: str) -> list[int]:
        return self.tokens if kind == "active_work" else self.resident


class Policy(Protocol):
    """Chooses an index into the targets; may keep its own memory of what it sent where."""

    def choose(self, request: RouteRequest, signals: Signals, now_ns: int) -> int: ...


def least(loads: Sequence[int]) -> int:
    """Index of the smallest load, lowest index on ties."""
    best = 0
    for index, load in enumerate(loads):
        if load < loads[best]:
            best = index
    return best
