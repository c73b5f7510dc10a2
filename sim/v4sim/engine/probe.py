"""What an observer of the engine can see. The engine calls these and knows nothing of who listens.

Observers never change anything; everything handed over is final and must be copied if kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from v4sim.engine.bursts import Bursts
    from v4sim.engine.call import Call
    from v4sim.engine.rank import Rank
    from v4sim.engine.replica import Replica

    Int64s = NDArray[np.int64]


class Probe:
    """Base of all observers: override what you want to see."""

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
        """One step that was priced alone; per rank its decode `rows` and the prompt tokens it computed."""

    def on_decode_block(
        self,
        replica: Replica,
        start_ns: int,
        ends_ns: Int64s,
        durations_ns: Int64s,
        parts_ns: Int64s,
        rows: list[int],
    ) -> None:
        """Consecutive decode steps: when each ended and how long it took [k], its parts [PARTS, k], and
        rows per rank."""

    def on_tokens(self, ends_ns: Sequence[int] | Int64s, bursts: Bursts) -> None:
        """Bursts of tokens as clients see them at `ends_ns` [k], of every sequence that decoded."""

    def on_admit(self, rank: Rank, call: Call, now_ns: int) -> None:
        """A call got its first (or, after a retraction, next) chunk."""

    def on_done(self, rank: Rank, call: Call, now_ns: int) -> None:
        """A call completed, was rejected or aborted; its engine resources may still be held."""

    def on_release(self, rank: Rank, call: Call, now_ns: int) -> None:
        """The engine gave up what a call held."""

    def on_end(self, replicas: list[Replica], now_ns: int) -> None:
        """The run is over."""
