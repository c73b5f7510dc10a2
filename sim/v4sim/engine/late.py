"""What an engine that chooses ahead of its results does not know yet, and what that costs.

SGLang's overlap and vLLM's async scheduling choose a batch while the results of the running one are
out. Calls that end in it are computed once more (`spent`) and hold pages for that; estimates see
one step less of every answer than the client.
"""

from __future__ import annotations

from v4sim.engine.call import FINISHED, Call
from v4sim.engine.rank import Rank


def known_tokens(rank: Rank, call: Call, *, late: bool) -> int:
    """Output tokens of a running call that the engine knows of when it chooses a batch.

    `late`: what the step that ends at this instant yields is not among them.
    """
    clock = rank.clock
    if not late:
        return call.emitted_at(clock)
    if call.state == FINISHED:
        return call.output_tokens - 1
    if call.clock0 == clock:
        return call.emitted_at(clock) - (1 if call.emit_ns == rank.choice_ns else 0)
    return call.emitted_at(clock - 1 if rank.last_decode_ns == rank.choice_ns else clock)


def spent(rank: Rank) -> list[Call]:
    """Finished calls that are computed once more, since nobody could know that they would finish."""
    return [call for call in rank.leaving if not call.foreseen]


def spent_growth(rank: Rank, lookahead_tokens: int) -> int:
    """Pages that finished calls take, in tokens, for the step in which they are computed once more."""
    return sum([max(0, _end(rank, call, lookahead_tokens) - call.kv_end) for call in spent(rank)])


def grow_spent(rank: Rank, lookahead_tokens: int) -> None:
    """Give finished calls those pages, as far as there is room."""
    for call in spent(rank):
        call.overshot = True
        grown = _end(rank, call, lookahead_tokens) - call.kv_end
        if 0 < grown <= rank.owner.kv_available:
            rank.owner.make_kv_room(grown)
            rank.owner.kv.take(grown)
            call.kv_end += grown


def _end(rank: Rank, call: Call, lookahead_tokens: int) -> int:
    in_flight = rank.in_flight_tokens
    if call.generated < call.output_tokens:
        context = call.held_context(call.clock0 + call.num_steps, in_flight, rank.settled)
    else:  # ended with its first token
        context = call.prefill_target - 1 + (in_flight - 1 if call.padded and in_flight else 0)
    return rank.pages(context + lookahead_tokens)
