"""What the ranks of one replica decode together: their sequences, the verify width, the walks.

The state behind the cycle (`replica`), its prices (`pricing`) and its results (`results`): who
decodes where (`batch`), how far each call will go in each step (`store`), and how wide the verify
window is. It changes only when membership does; `mark_stale` says so, `refresh` catches up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from v4sim.engine.base import Scheduler
from v4sim.engine.call import Call
from v4sim.engine.decode import PageRule, new_batch
from v4sim.engine.rank import Rank
from v4sim.speculation import SpecPolicy
from v4sim.walks import Walks


class Group:
    """Ranks that step in lockstep, and the decode state they share."""

    def __init__(
        self,
        ranks: Sequence[Rank],
        scheduler: Scheduler,
        spec: SpecPolicy,
        walks: Walks | None,
    ) -> None:
        self.ranks = list(ranks)
        self.scheduler = scheduler
        self.page_tokens = self.ranks[0].page_tokens
        self.width = spec.draft_tokens + 1
        self.lookahead = scheduler.decode_alloc_tokens(self.width)
        self.in_flight = scheduler.in_flight_tokens
        pages = PageRule(self.page_tokens, self.lookahead, self.in_flight)
        self.batch = new_batch(len(self.ranks), pages)
        self.store = self.batch.store
        for rank in self.ranks:
            rank.in_flight_tokens = self.in_flight
        self._spec = spec
        self._walks = walks
        self._full_width = self.width
        self._stale = False

    def mark_stale(self) -> None:
        self._stale = True

    def refresh(self, decodes: bool = True) -> None:
        """Bring the verify width up to date with how many decode, and the batch with who does.

        Where the next step `decodes` for nobody, the batch can wait: nothing reads it.
        """
        if self._stale:
            if self._spec.adaptive_max_rows:
                self._set_width(self._spec.width(max(len(rank.decoding) for rank in self.ranks)))
            if decodes:
                self._stale = False
                self.batch.rebuild(self.ranks)

    def _set_width(self, width: int) -> None:
        if width == self.width:
            return
        self.width = width
        for rank in self.ranks:
            for call in rank.decoding:
                past = call.starts[: rank.clock - call.clock0]
                self.store.drop(call)
                self._walk(call, call.emitted_at(rank.clock), past)
                self._store(call)
                rank.finishes.push(call)

    def _store(self, call: Call) -> None:
        self.store.put(call, 1 if call.padded else self.in_flight or 0)

    def needs(self) -> list[int]:
        """Tokens of the pages that each rank holds in the next step."""
        if self.in_flight == 0:  # counted from the step in flight, where there is one
            lags = [0 if rank.clock in rank.settled else 1 for rank in self.ranks]
        else:
            lags = [self.batch.pages.lag] * len(self.ranks)
        return self.batch.needs(lags)

    def begin_decode(self, rank: Rank, call: Call, now_ns: int) -> None:
        """A call that has its first token joins the decoding sequences of its rank."""
        self._walk(call, call.generated, None)
        self._store(call)
        rank.join_decode(call, now_ns)
        self._stale = True

    def _walk(self, call: Call, first: int, past: NDArray[np.int64] | None) -> None:
        walks = self._walks
        if walks is None:
            starts = np.arange(first, call.output_tokens)
        elif first == 1 and past is None and self.width == self._full_width and not call.retractions:
            starts, call.phases = walks.fresh(call.uid)
        else:
            starts = walks.again(call.uid, first, self.width - 1, call.phases)
        call.starts = starts if past is None else np.concatenate([past, starts])
        call.num_steps = call.starts.size

    def settle(self, rank: Rank) -> None:
        """Tally the verify steps of calls that left decode on this rank, and forget their walks."""
        self._stale = True
        for call, clock in rank.walked:
            executed = clock - call.clock0
            if self._walks is not None and executed > 0:
                model = self._walks.model
                if call.phases is None:
                    model.record_sizes(self.store.sizes(call, executed, model.draft_tokens + 1))
                else:
                    emitted = self.store.contexts(call, executed + 1) - (call.prompt_tokens - 1)
                    model.record(emitted[:-1], emitted[1:], call.phases)
            self.store.drop(call)
        rank.walked.clear()
