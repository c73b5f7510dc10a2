"""SGLang's prefill delayer: ranks agree, once per pass, whether anybody may start a prefill.

After `managers/prefill_delayer.py` (`--enable-prefill-delayer`): with no rank or every rank able to
prefill nothing is held back but for the slot rule; with only some able, all are denied for up to
`max_passes` passes, so that prefills of several ranks fall into the same step. A rank in the middle
of a prompt goes on in any case. Left out: the low watermark and the queue trigger (both off by
default).
"""

from __future__ import annotations

from collections.abc import Sequence

from v4sim.engine.rank import Rank


class PrefillDelayer:
    """One replica's verdicts. `max_running` is the limit per rank."""

    def __init__(self, max_passes: int, max_running: int) -> None:
        self._max_passes = max_passes
        self._max_running = max_running
        self._passes = 0
        self._largest_batch = 0

    def denies(self, ranks: Sequence[Rank], visible_ns: int) -> bool:
        """The verdict of this pass; call it once per pass."""
        able = sum(
            1
            for rank in ranks
            if rank.prefilling or (rank.waiting and rank.waiting[0].queued_ns <= visible_ns)
        )
        if able == 0:
            self._passes = 0
            return False
        if able == len(ranks):
            free = self._max_running - max(rank.num_running for rank in ranks)
            denied = 0 < free < self._largest_batch
        else:
            denied = True
        if not denied or self._passes >= self._max_passes:
            self._passes = 0
            return False
        self._passes += 1
        return True

    def saw(self, requests: int) -> None:
        """A pass formed a prefill batch of this many requests on some rank."""
        self._largest_batch = max(self._largest_batch, requests)
