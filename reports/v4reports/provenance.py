"""What the seconds of each part rest on, from the run's provenance entries.

An entry belongs to the part whose name its `op` is or begins with (`moe`, `moe.gate`, `index_scan/decode`).
A part with several kinds shows all of them, the weakest claim last.
"""

from __future__ import annotations

import re

from v4reports.names import PROVENANCE
from v4reports.rundir import Run


def kinds_of_part(run: Run, part: str) -> tuple[str, ...]:
    """The provenance kinds of a part, in the order of `names.PROVENANCE`, then by name."""
    found = {source.kind for source in run.provenance if part_of_op(source.op) == part}
    order = list(PROVENANCE)
    return tuple(sorted(found, key=lambda kind: (order.index(kind) if kind in order else len(order), kind)))


def kind_of_part(run: Run, part: str) -> str:
    """One text for a table or a figure: the kinds, or that none is stated."""
    return " + ".join(kinds_of_part(run, part)) or "not stated"


def part_of_op(op: str) -> str:
    """The part that an operation's seconds are booked under: the first word of its name."""
    return re.split(r"[./:\[( ]", op, maxsplit=1)[0]
