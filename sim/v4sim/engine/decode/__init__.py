"""The decoding sequences of a replica, in the form that suits how the program runs."""

from __future__ import annotations

from v4sim import form
from v4sim.engine.decode.base import DecodeBatch, PageRule

__all__ = ["DecodeBatch", "PageRule", "new_batch"]


def new_batch(num_ranks: int, pages: PageRule) -> DecodeBatch:
    """Loops where the program is compiled, arrays where it is interpreted."""
    if form.COMPILED:
        from v4sim.engine.decode.loops import LoopBatch

        return LoopBatch(num_ranks, pages)
    from v4sim.engine.decode.arrays import ArrayBatch

    return ArrayBatch(num_ranks, pages)
