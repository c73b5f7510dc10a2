"""What a command says while it works: on stderr, since stdout belongs to the result.

Progress is drawn only where a person watches (stderr is a terminal); NO_COLOR and dumb terminals are
rich's own rules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from v4traces.table import TraceTable


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def wrote(path: object, table: TraceTable) -> None:
    """The last line of a command that makes a trace, after its notes and warnings."""
    from v4traces.check import check_trace

    for note in table.metadata.notes:
        say(f"note: {note}")
    for finding in check_trace(table):
        say(f"{finding.severity}: {finding.message}")
    say(f"Wrote {path}: {table.n} calls, {len(table.session_names)} sessions")


@contextmanager
def counter(label: str) -> Iterator[Callable[[int], None] | None]:
    """Yield a function that shows a running count, or None where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status(label) as status:
        yield lambda done: status.update(f"{label}: {done}")
