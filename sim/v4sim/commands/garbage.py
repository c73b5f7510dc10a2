"""Python's cyclic garbage collector, out of the way of a replay.

A simulation makes millions of objects and hardly a cycle among them: walking them again and again to
find none is a tenth of the time. Reference counting frees what a run drops, as ever.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No cyclic garbage collection inside the block, or inside the function it decorates."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
