"""What a law looks at and how it says that it is broken.

A law is a function from `Evidence` to findings: none if it holds, one per kind of breach otherwise, with
the first call concerned and the number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from v4sim.metrics.calls import Bools, Calls
from v4traces.laws import Finding

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.results import RunResult
    from v4traces.table import TraceTable


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that laws look at."""

    calls: Calls
    trace: TraceTable
    deployment: Deployment
    result: RunResult
    time_scale: float = 1.0  # of the workload: what delays were multiplied by

    def name(self, call: int) -> str:
        c = self.calls
        row, copy = int(c["row"][call]), int(c["instance"][call])
        again = f", copy {copy}" if copy else ""
        return f"call {call}: {self.trace.label(row)}{again}"

    def at_row(self, column: Any) -> Any:
        """A column of the trace, per call."""
        return column[self.calls["row"]]


Check = Callable[[Evidence], Iterator[Finding]]


def broken(
    evidence: Evidence, law: str, mask: Bools, says: Callable[[int], str], column: str = ""
) -> Iterator[Finding]:
    """One finding for the calls in `mask`, if there are any."""
    count = int(np.count_nonzero(mask))
    if count:
        first = int(np.argmax(mask))
        more = f" ({count} calls.)" if count > 1 else ""
        message = f"law {law}: {evidence.name(first)}: {says(first)}.{more}"
        yield Finding("error", law, message, row=first, column=column, count=count)


def whole_run(law: str, message: str) -> Finding:
    return Finding("error", law, f"law {law}: {message}.")
