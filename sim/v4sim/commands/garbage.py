"""Python's cyclic garbage collector: out of the way of one replay, at work between many.

A simulation makes millions of objects and hardly a cycle among them: walking them again and again to
find none is a tenth of the time, and reference counting frees what a run drops, as ever. What is left
of a run once it is over is a few cycles, so whoever simulates again and again must collect them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No cyclic garbage collection inside the block."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def collected() -> Iterator[None]:
    """Cyclic garbage collection inside the block, or inside the function it decorates."""
    was_on = gc.isenabled()
    gc.enable()
    try:
        yield
    finally:
        if not was_on:
            gc.disable()
