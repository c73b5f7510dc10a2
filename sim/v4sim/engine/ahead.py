"""What SGLang evicts before a decode step takes its pages, needed or not.

After SGLang 0.5.23 (`mem_cache/allocation.py`, `allocation_sizing.py`). Without drafts a page per row is
free before the pages of a step are taken. With drafts a page per row is free on top of what the step
takes, if it takes anything; and a row that has not decoded since its prefill takes the rest of its last
page as well, since its pages were counted in tokens until then. Units: tokens.
"""

from __future__ import annotations

from v4sim.engine.late import spent, spent_growth
from v4sim.engine.rank import Rank


def evict_for_decode(rank: Rank, needed_tokens: int, lookahead_tokens: int) -> None:
    """Before a step after which the decoding calls hold `needed_tokens`."""
    rows = len(rank.decoding)
    if rank.leaving:
        rows += len(spent(rank))
    cushion = rows * rank.page_tokens
    if lookahead_tokens > 1:
        grown = max(0, needed_tokens - rank.decode_alloc)
        if rank.leaving:
            grown += spent_growth(rank, lookahead_tokens)
        if rank.owner.kv.free >= grown + 2 * cushion:
            return
        grown += _unfilled(rank)
        if grown == 0:
            return
        cushion += grown
    _make_free(rank, cushion)


def take_on_the_way(rank: Rank, totals: list[int], drafts: bool) -> None:
    """A run of decode steps, after each of which so many tokens are held; the first has taken its pages."""
    cushion = len(rank.decoding) * rank.page_tokens
    for total in sorted(set(totals[1:])):
        taken = max(0, total - rank.decode_alloc)
        if taken or not drafts:
            _make_free(rank, cushion + taken if drafts else cushion)
        if taken:
            rank.owner.make_kv_room(taken)
            rank.set_decode_alloc(total)
    if len(totals) > 2 and totals[-1] == totals[-2] and not drafts:
        _make_free(rank, cushion)


def _make_free(rank: Rank, tokens: int) -> None:
    """So much, or as much as can be evicted."""
    if rank.evicts_ahead:
        rank.owner.make_kv_room(min(tokens, rank.owner.kv_available))


def _unfilled(rank: Rank) -> int:
    """What rows that have not decoded since their prefill leave free of their last page."""
    ends = [call.context_at(rank.clock) for call in rank.decoding if call.clock0 == rank.clock]
    if rank.leaving:
        ends += [call.prefill_target - 1 for call in spent(rank) if call.num_steps == 0]
    return sum([rank.pages(end) - end for end in ends])
