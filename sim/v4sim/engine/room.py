"""Pages for the next decode step of a replica's ranks: evict first, then retract, then take.

The rules say who goes; what calls that have ended unknown to the engine take once more is counted as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from v4sim.engine.ahead import evict_for_decode
from v4sim.engine.group import Group
from v4sim.engine.late import grow_spent, spent_growth
from v4sim.engine.rank import Rank
from v4sim.engine.results import Results


class DecodeRoom:
    """Of one replica."""

    def __init__(self, group: Group, results: Results) -> None:
        self._group = group
        self._results = results

    def make(self, ranks: Sequence[Rank], now: int) -> None:
        """For a step of these ranks; a rank that waits for a finished call's pages is held back."""
        group, scheduler = self._group, self._group.scheduler
        if not group.ranks[0].keeps_pools:
            for rank in ranks:
                scheduler.make_decode_room(rank, 0)
                if rank.walked:
                    group.settle(rank)
                self._results.report_aborted(rank, now)
            return
        group.refresh()
        needs = group.needs()
        for rank in ranks:
            rank.held_back = False
            needed = needs[rank.index]
            once_more = spent_growth(rank, group.lookahead) if rank.leaving else 0
            while needed + once_more > rank.decode_alloc and scheduler.make_decode_room(
                rank, needed + once_more
            ):
                group.settle(rank)
                once_more = spent_growth(rank, group.lookahead) if rank.leaving else 0
                self._results.report_aborted(rank, now)
                needed = sum(
                    rank.pages(call.held_context(rank.clock, group.in_flight, rank.settled) + group.lookahead)
                    for call in rank.decoding
                )
            if rank.held_back:
                continue
            if rank.evicts_ahead:
                evict_for_decode(rank, needed, group.lookahead)
            if needed > rank.decode_alloc:
                rank.set_decode_alloc(needed)
            if rank.leaving:
                grow_spent(rank, group.lookahead)
