"""The decoding sequences of a replica, in the form that suits how the program runs."""

from __future__ import annotations

from v4sim import form
from v4sim.engine.decode.arrays import ArrayBatch
from v4sim.engine.decode.base import DecodeBatch, PageRule, WalkStore

__all__ = ["ArrayBatch", "DecodeBatch", "PageRule", "WalkStore", "new_batch"]


def new_batch(num_ranks: int, pages: PageRule) -> DecodeBatch:
    """Loops where the program is compiled, arrays where it is interpreted."""
    if form.COMPILED:
        from v4sim.engine.decode.loops import LoopBatch

        return LoopBatch(num_ranks, pages)
    return ArrayBatch(num_ranks, pages)
