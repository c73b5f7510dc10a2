"""One operation of a profile: a table or a fit over named axes, with domain, residual and provenance.

Evaluation of a single point is here (`Operation.at`); fast functions are made from `line` and `rows`.
Leaves out files (see `profile`) and what operations mean together (see `compile`).
Values are microseconds (or a share of another operation); axes have the units that their names end in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from v4sim.cost.tables import Grids, Line
from v4sim.errors import ProfileError


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a number comes from; what its source does not say is None."""

    kind: str  # measured | published | roofline
    source: str
    timing: str | None
    kernel: str | None
    commit: str | None
    gpu: str | None
    driver: str | None
    clocks: str | None
    libraries: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Residual:
    """Relative error of the operation against rows it was not built from; rows = 0: an assumed error."""

    median: float
    p95: float
    rows: int


@dataclass(frozen=True, slots=True)
class Axis:
    """One variable: the points of a table, or the two ends of a fit's domain."""

    name: str
    points: tuple[float, ...]

    @property
    def span(self) -> str:
        return f"{self.name} {self.points[0]:g}..{self.points[-1]:g}"


@dataclass(frozen=True, slots=True)
class Term:
    """coefficient x the product of the named axes (no axes: a constant)."""

    name: str
    coefficient: float
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of one shape; exactly one of `values` and `terms` is filled."""

    name: str
    axes: tuple[Axis, ...]
    values: tuple[Any, ...]
    terms: tuple[Term, ...]
    combine: str  # of terms: sum | max
    provenance: str
    residual: Residual
    note: str = ""
    unit: str = "us"  # "share": a pure number, part of another operation

    @property
    def domain(self) -> str:
        return ", ".join(axis.span for axis in self.axes) or "any"

    def line(self, scale: float = 1.0) -> Line:
        """The one-axis table as a function, values times `scale`."""
        self._need(1)
        return Line(self.axes[0].points, [scale * v for v in self.values])

    def rows(self, scale: float = 1.0) -> list[list[float]]:
        """The values of a two-axis table times `scale`."""
        self._need(2)
        return [[scale * v for v in row] for row in self.values]

    def term(self, name: str) -> float:
        for term in self.terms:
            if term.name == name:
                return term.coefficient
        raise ProfileError(
            f"Operation {self.name!r} has no term {name!r} (there are "
            f"{', '.join(t.name for t in self.terms) or 'none'}): write the profile again with this version."
        )

    def at(self, **coordinates: float) -> float:
        """Microseconds at a point; every axis must be given."""
        missing = [axis.name for axis in self.axes if axis.name not in coordinates]
        if missing or len(coordinates) != len(self.axes):
            raise ProfileError(
                f"Operation {self.name!r} is a function of {', '.join(a.name for a in self.axes)}; "
                f"asked with {', '.join(coordinates) or 'nothing'}."
            )
        if self.terms:
            parts = [t.coefficient * math.prod(coordinates[a] for a in t.axes) for t in self.terms]
            return max(parts) if self.combine == "max" else sum(parts)
        if len(self.axes) == 1:
            return self.line().at(coordinates[self.axes[0].name])
        grid = Grids(self.axes[0].points, self.axes[1].points, [self.rows()])
        return grid.at(coordinates[self.axes[0].name], coordinates[self.axes[1].name])[0]

    def scaled(self, factor: float) -> Operation:
        """All times multiplied by a factor."""
        if self.terms:
            return replace(
                self, terms=tuple(replace(t, coefficient=t.coefficient * factor) for t in self.terms)
            )
        if len(self.axes) == 1:
            return replace(self, values=tuple(v * factor for v in self.values))
        return replace(self, values=tuple(tuple(v * factor for v in row) for row in self.values))

    def _need(self, axes: int) -> None:
        if self.terms or len(self.axes) != axes:
            raise ProfileError(
                f"Operation {self.name!r} must be a table over {axes} axes here; it is "
                f"{'a fit' if self.terms else f'a table over {len(self.axes)}'}."
            )
