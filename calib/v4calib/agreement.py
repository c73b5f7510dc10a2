"""Two profiles side by side: the same operation at the same points, as a ratio.

Points are the nodes of the first profile's table that lie in the second one's domain (of a fit: the
corners and the middle of the domain they share). Used for `diff`, and as the agreement table of a run:
measured against published. A ratio says how far two sources agree, not who is right.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from v4calib.timing import median
from v4sim.cost.operation import Operation
from v4sim.cost.profile import Profile
from v4sim.cost.tables import Grids


@dataclass(frozen=True, slots=True)
class Agreement:
    """One operation in both profiles; ratios are first / second."""

    operation: str
    points: int
    median: float
    low: float
    high: float
    first: str  # kind of provenance
    second: str

    def as_dict(self) -> dict[str, Any]:
        return {s: getattr(self, s) for s in self.__slots__}


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything in which two profiles differ."""

    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    changed: tuple[Agreement, ...]
    same: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "only_first": list(self.only_first),
            "only_second": list(self.only_second),
            "changed": [row.as_dict() for row in self.changed],
            "same": self.same,
        }


def agreement(first: Profile, second: Profile) -> list[Agreement]:
    """All operations that both hold, by name."""
    out = []
    for name in sorted(first.operations):
        if not second.has(name):
            continue
        one, two = first.operations[name], second.operations[name]
        mine, theirs = _function(one), _function(two)
        ratios = [
            value / other for at in _points(one, two) if (other := theirs(at)) > 0 and (value := mine(at)) > 0
        ]
        out.append(
            Agreement(
                name,
                len(ratios),
                median(ratios) if ratios else math.nan,
                min(ratios, default=math.nan),
                max(ratios, default=math.nan),
                first.provenance_of(one).kind,
                second.provenance_of(two).kind,
            )
        )
    return out


def difference(first: Profile, second: Profile) -> Difference:
    """What only one holds, and what both hold with other numbers."""
    rows = agreement(first, second)
    changed = tuple(row for row in rows if _numbers(first, row.operation) != _numbers(second, row.operation))
    return Difference(
        tuple(sorted(set(first.operations) - set(second.operations))),
        tuple(sorted(set(second.operations) - set(first.operations))),
        changed,
        len(rows) - len(changed),
    )


def table(rows: Sequence[Agreement], first: str, second: str) -> str:
    """Text, one line an operation."""
    lines = [f"{'operation':<40}{'points':>7}{'median':>9}{'lowest':>9}{'highest':>9}  {first} / {second}"]
    for r in rows:
        numbers = (
            f"{r.median:>9.3g}{r.low:>9.3g}{r.high:>9.3g}" if r.points else f"{'nothing to compare':>27}"
        )
        lines.append(f"{r.operation:<40}{r.points:>7}{numbers}  {r.first} / {r.second}")
    return "\n".join(lines)


def _numbers(profile: Profile, name: str) -> tuple[Any, ...]:
    operation = profile.operations[name]
    return operation.axes, operation.values, operation.terms, operation.combine


def _function(operation: Operation) -> Callable[[dict[str, float]], float]:
    """As `Operation.at`, with its table made once."""
    if operation.terms:
        return lambda at: operation.at(**at)
    names = [axis.name for axis in operation.axes]
    if len(names) == 1:
        line = operation.line()
        return lambda at: line.at(at[names[0]])
    grid = Grids(operation.axes[0].points, operation.axes[1].points, [operation.rows()])
    return lambda at: grid.at(at[names[0]], at[names[1]])[0]


def _points(one: Operation, two: Operation) -> list[dict[str, float]]:
    if [a.name for a in one.axes] != [a.name for a in two.axes]:
        return []
    per_axis = []
    for mine, theirs in zip(one.axes, two.axes, strict=True):
        low = max(mine.points[0], theirs.points[0])
        high = min(mine.points[-1], theirs.points[-1])
        if low > high:
            return []
        points = mine.points if one.values else (low, math.sqrt(max(low, 1.0) * high), high)
        per_axis.append([p for p in points if low <= p <= high])
    names = [a.name for a in one.axes]
    return [dict(zip(names, at, strict=True)) for at in itertools.product(*per_axis)]
