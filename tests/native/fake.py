"""An engine that keeps the contract of `v4sim.engine.native.base` and has whims.

It stands for vLLM where none is installed: the adapter must follow whatever an engine decides, also what
vLLM does rarely (leaving a decode out, cutting its drafts, preempting). With whims the seed decides.
The real one is held against the adapter by `make oracle`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from v4sim.engine.native.base import Batch, Request, Row

PAGE = 256


@dataclass
class Known:
    """What the engine knows of a request."""

    request: Request
    target: int = 0  # to be computed before it decodes
    computed: int = 0  # of that
    output: int = 0
    in_flight: int = 0  # batches that hold it and have no results yet


class FakeEngine:
    """First come, first served, one prompt chunk after another, all decodes in each step."""

    def __init__(
        self,
        *,
        budget: int = 2048,
        drafts: int = 0,
        blocks: int = 1000,
        seats: int = 64,
        whims: random.Random | None = None,
        hit: Callable[[Request], int] = lambda request: 0,
        foresees: bool = False,
    ) -> None:
        self.capacity_tokens = blocks * PAGE
        self.heard: list[str] = []
        self._budget, self._drafts, self._seats = budget, drafts, seats
        self._whims, self._hit, self._foresees = whims, hit, foresees
        self._waiting: list[Known] = []
        self._running: list[Known] = []
        self._batches: deque[list[int]] = deque()

    # -- what is asked of it --------------------------------------------------------------------

    @property
    def used_tokens(self) -> int:
        return sum(-(-known.computed // PAGE) * PAGE for known in self._running)

    @property
    def used_window_tokens(self) -> int:
        return 0

    def add(self, request: Request) -> None:
        self.heard.append(f"add {request.number}")
        self._waiting.append(Known(request))

    def schedule(self) -> Batch:
        self.heard.append("schedule")
        out = self._preempt()
        rows: list[Row] = []
        budget = self._budget
        for known in self._running:
            if self._foresees and known.output + known.in_flight >= known.request.max_new_tokens:
                continue
            left = known.target - known.computed
            take = min(left, budget) if left else self._decode_width(bool(rows))
            if 0 < take <= budget:
                budget -= self._take(known, take, rows)
        if not out:
            while self._waiting and budget > 0 and len(self._running) < self._seats:
                known = self._waiting[0]
                if known.in_flight:
                    break  # its tokens are on their way
                self._waiting.pop(0)
                self._running.append(known)
                known.target = known.request.prompt_tokens + known.output
                known.computed = self._hit(known.request)
                budget -= self._take(known, min(known.target - known.computed, budget), rows)
        if rows:
            self._batches.append([row.number for row in rows])
        return Batch(rows, out)

    def _decode_width(self, may_skip: bool) -> int:
        """A step is never left empty, so whims begin with the second."""
        if self._whims is None or not may_skip or self._whims.random() < 0.8:
            return 1 + self._drafts
        return self._whims.randint(0, 1 + self._drafts)

    def _take(self, known: Known, tokens: int, rows: list[Row]) -> int:
        rows.append(Row(known.request.number, known.computed, tokens))
        if known.computed < known.target:
            known.computed += tokens
        known.in_flight += 1
        return tokens

    def _preempt(self) -> list[int]:
        if self._whims is None or len(self._running) < 2 or self._whims.random() > 0.03:
            return []
        known = self._running.pop()
        known.computed = 0
        self._waiting.insert(0, known)
        return [known.request.number]

    def hand_over(self, yields: Mapping[int, int], ended: frozenset[int]) -> None:
        self.heard.append("hand over")
        held = self._batches.popleft()
        for known in [*self._running, *self._waiting]:
            known.output += yields.get(known.request.number, 0)
            known.in_flight -= held.count(known.request.number)
        self._running = [known for known in self._running if known.request.number not in ended]
        self._waiting = [known for known in self._waiting if known.request.number not in ended]

    def lost_tokens(self, number: int, hit_tokens: int) -> int:
        return 0

    def drop(self, number: int) -> None:
        self.heard.append(f"drop {number}")
        self._running = [known for known in self._running if known.request.number != number]
        self._waiting = [known for known in self._waiting if known.request.number != number]


class FakePrefillFirst(FakeEngine):
    """Prompts first, one after another; at whim it retracts the youngest, or lets nobody decode."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.idle_rounds = self.prefills_seen = 0

    def schedule(self) -> Batch:
        self.heard.append("schedule")
        rows: list[Row] = []
        budget = self._budget
        for known in self._running:
            if known.computed < known.target:
                budget -= self._take(known, min(known.target - known.computed, budget), rows)
        while self._waiting and budget > 0 and len(self._running) < self._seats:
            known = self._waiting.pop(0)
            self._running.append(known)
            known.target = known.request.prompt_tokens + known.output
            known.computed = self._hit(known.request)
            budget -= self._take(known, min(known.target - known.computed, budget), rows)
        return self._batch(rows, [])

    def decode(self) -> Batch:
        self.heard.append("decode")
        if self._whims is not None and self._batches and self._whims.random() < 0.05:
            return Batch([], [])  # results are on their way, and more will be known
        out = self._preempt()
        for number in out:  # to the end of the queue, without the token in flight
            self._waiting.append(self._waiting.pop(0))
            for batch in self._batches:
                while number in batch:
                    batch.remove(number)
            self._waiting[-1].in_flight = 0
        rows: list[Row] = []
        for known in self._running:
            if self._foresees and known.output + known.in_flight >= known.request.max_new_tokens:
                continue
            self._take(known, 1 + self._drafts, rows)
        return self._batch(rows, out)

    def _batch(self, rows: list[Row], out: list[int]) -> Batch:
        if rows:
            self._batches.append([row.number for row in rows])
        return Batch(rows, out)

    def saw_prefill(self) -> None:
        self.prefills_seen += 1

    def on_idle(self) -> None:
        self.idle_rounds += 1
