"""What the engine did, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from v4sim import form
from v4sim.engine.call import Call
from v4sim.engine.probe import Probe
from v4sim.engine.rank import Rank
from v4sim.engine.replica import Replica
from v4sim.results import RunResult


class Step(NamedTuple):
    """One engine step: milliseconds, and (decode rows, prefill tokens) of every rank."""

    start_ms: float
    end_ms: float
    kind: str
    work: list[tuple[int, int]]


@dataclass
class Watched(Probe):
    """A run and what was seen of it. `admits` are (ms, trace row) in order."""

    steps: list[Step]
    admits: list[tuple[float, int]]
    result: RunResult | None = None

    def on_step(
        self,
        replica: Replica,
        start_ns: int,
        duration_ns: int,
        parts_ns: list[int],
        kind: str,
        rows: list[int],
        new_tokens: list[int],
    ) -> None:
        self.steps.append(
            Step(
                start_ns / 1e6, (start_ns + duration_ns) / 1e6, kind, list(zip(rows, new_tokens, strict=True))
            )
        )

    def on_admit(self, rank: Rank, call: Call, now_ns: int) -> None:
        self.admits.append((now_ns / 1e6, call.row))

    def ms(self, column: str) -> list[float]:
        """A column of instants by trace row, in milliseconds."""
        return [value / 1e6 for value in self.by_row(column)]

    def by_row(self, column: str) -> list[Any]:
        """A column by trace row."""
        assert self.result is not None
        calls = self.result.calls
        return [calls[column][i] for i in sorted(range(len(calls["row"])), key=lambda i: calls["row"][i])]

    def work(self, rank: int = 0) -> list[tuple[int, int]]:
        """(decode rows, prefill tokens) of one rank in every step."""
        return [step.work[rank] for step in self.steps]


@pytest.fixture(scope="session")
def watch(simulate_rows: Callable[..., RunResult]) -> Callable[..., Watched]:
    """`simulate_rows`, every step taken alone and recorded."""

    def go(rows: Any, **options: Any) -> Watched:
        watched = Watched([], [])
        watched.result = simulate_rows(rows, stepwise=True, probes=(watched,), **options)
        return watched

    return go


@pytest.fixture(scope="session")
def as_if_compiled() -> Callable[[], AbstractContextManager[None]]:
    """What runs inside takes the forms of the compiled program, interpreted."""

    @contextmanager
    def forms() -> Iterator[None]:
        before = form.COMPILED
        form.COMPILED = True  # type: ignore[misc]  # a constant, but for this
        try:
            yield
        finally:
            form.COMPILED = before  # type: ignore[misc]  # as above

    return forms
