"""How much of a running call vLLM's blocks can be found by: as far as the ids of their tokens are known.

`ahead`: tokens after a block that its hash covers too, which an MTP layer reads. With late results the
tokens of the step in flight have no ids yet.
"""

from __future__ import annotations

from v4sim.engine.call import FINISHED, Call
from v4sim.engine.rank import Rank


def hashed_tokens(rank: Rank, call: Call, ahead: int, *, late: bool) -> int:
    """What stays of a call that is preempted."""
    if call.state == FINISHED:
        if call.generated < call.output_tokens:
            return call.context_at(call.clock0 + call.num_steps - 1)
        return call.prefilled - ahead
    if call.join_order == 0:
        return call.prefilled
    if not late:
        return call.context_at(rank.clock)
    if rank.clock > call.clock0:
        return call.context_at(rank.clock - 1)
    return call.context_at(rank.clock) - ahead


def hashed_in_flight(rank: Rank, call: Call, ahead: int, *, late: bool) -> int:
    """What stays of a call whose client hangs up while a step runs: blocks are hashed where it is planned."""
    if call.state == FINISHED:
        if call.generated >= call.output_tokens:
            return call.prefilled - ahead
        known = call.context_at(call.clock0 + call.num_steps - 1)
        return known + (0 if call.foreseen else 1 - ahead)
    if call.join_order == 0:
        return call.prefilled
    if not late:
        return call.context_at(rank.clock) + 1 - ahead
    if rank.clock > call.clock0:
        return call.context_at(rank.clock - 1) + 1 - ahead
    return call.context_at(rank.clock) - ahead
