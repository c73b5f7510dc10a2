"""What a command says while it works: notes and progress, on stderr.

stdout belongs to the result. Progress is drawn only where a person watches (stderr is a terminal);
NO_COLOR and dumb terminals are rich's own rules. Nothing here is part of a result, so the wall clock,
which the simulation never reads, may be used for the time that is left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[float, float], None]  # (done, total), in one unit of the caller's choice


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def wrote(path: object) -> None:
    say(f"Wrote {path}")


def is_watched() -> bool:
    return sys.stderr.isatty()


@contextmanager
def progress(label: str) -> Iterator[Advance | None]:
    """Yield a function that moves a bar with the time left, or None where nobody watches."""
    if not is_watched():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=5) as bars:
        bar = bars.add_task(label, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)
