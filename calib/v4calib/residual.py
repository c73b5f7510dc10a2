"""Residuals of a profile against rows that it was not made from: published ones, or measured and held out.

The profile is made again from the same package (or fitted again to the same rows). Operations that differ
from that (measured elsewhere, published, or edited) are listed and left out, because those rows do not
judge them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from v4calib.draft import Draft
from v4calib.errors import CalibError
from v4calib.journal import Header
from v4calib.rows import Row
from v4sim.cost.operation import Operation
from v4sim.cost.profile import Profile
from v4sim.cost.tables import Grids

if TYPE_CHECKING:
    from v4calib.aic.source import Source


@dataclass(frozen=True, slots=True)
class Goals:
    """Largest median and 95th percentile that pass."""

    median: float = 0.05
    p95: float = 0.15


CPU_GOALS = Goals(0.5, 3.0)  # a shared machine and tiny shapes: the chain is judged, not the numbers


@dataclass(frozen=True, slots=True)
class FamilyResidual:
    """Relative errors of one family of operations (the first word of their names)."""

    family: str
    operations: int
    rows: int
    median: float
    p95: float


@dataclass(frozen=True, slots=True)
class ResidualReport:
    """One profile, all families and the total; `own` are operations that published rows do not judge."""

    profile: str
    families: tuple[FamilyResidual, ...]
    total: FamilyResidual
    unjudged: tuple[str, ...]  # no row beside the nodes: an assumed error
    own: tuple[str, ...]
    goals: Goals = Goals()
    rows_are: str = "from the published tables"

    @property
    def good(self) -> bool:
        return self.total.median <= self.goals.median and self.total.p95 <= self.goals.p95

    def as_dict(self) -> dict[str, Any]:
        fields = FamilyResidual.__slots__
        return {
            "profile": self.profile,
            "good": self.good,
            "total": {f: getattr(self.total, f) for f in fields},
            "families": [{f: getattr(row, f) for f in fields} for row in self.families],
            "assumed": list(self.unjudged),
            "own": list(self.own),
        }

    def text(self) -> str:
        lines = [f"{self.profile}", f"  {'operations':<24}{'rows':>8}{'median':>9}{'p95':>9}"]
        for row in (*self.families, self.total):
            label = f"{row.family} ({row.operations})"
            lines.append(f"  {label:<24}{row.rows:>8}{row.median:>9.1%}{row.p95:>9.1%}")
        if self.unjudged:
            lines.append(f"  error assumed, no row to compare with: {', '.join(self.unjudged)}")
        if self.own:
            lines.append(f"  not {self.rows_are}: {_some(self.own)}")
        verdict = "within" if self.good else "above"
        lines.append(f"  {verdict} the goal of {self.goals.median:.0%} median and {self.goals.p95:.0%} p95")
        return "\n".join(lines)


def residuals(profile: Profile, source: Source, goals: Goals = Goals()) -> ResidualReport:
    """Compare a profile with the published rows of its GPU."""
    from v4calib.aic.build import draft_profile
    from v4calib.aic.source import FOLDERS

    if profile.gpu not in FOLDERS:
        raise CalibError(
            f"Profile {profile.name!r} is of gpu {profile.gpu!r}, which the published tables do not have: "
            f"they have {', '.join(FOLDERS)}."
        )
    draft = draft_profile(profile.gpu, source)
    return judge(profile, draft, goals, "from the published tables")


def held_out_residuals(
    profile: Profile, header: Header, rows: Sequence[Row], goals: Goals | None = None
) -> ResidualReport:
    """Compare a profile with the rows that its fit did not see."""
    from v4calib.fit import fit

    if header.facts.gpu != profile.gpu:
        raise CalibError(
            f"The rows are of gpu {header.facts.gpu!r}, profile {profile.name!r} is of {profile.gpu!r}."
        )
    chosen = goals or (CPU_GOALS if header.facts.kind == "cpu" else Goals())
    return judge(profile, fit(header, rows).draft, chosen, "fitted to these rows")


def judge(profile: Profile, draft: Draft, goals: Goals, rows_are: str) -> ResidualReport:
    """The comparisons of a draft, for those operations of a profile that are the draft's."""
    fresh = draft.finished(profile.name, "", "")
    own = sorted(
        name
        for name, operation in profile.operations.items()
        if not fresh.has(name) or not _same(operation, fresh.operations[name])
    )
    errors: dict[str, dict[str, list[float]]] = {}
    for c in draft.comparisons:
        if c.operation in profile.operations and c.operation not in own:
            family = errors.setdefault(c.operation.split(".", 1)[0], {})
            family.setdefault(c.operation, []).append(abs(c.error))
    judged = {name for family in errors.values() for name in family}
    everything = [e for family in errors.values() for rows in family.values() for e in rows]
    if not everything:
        raise CalibError(
            f"No operation of profile {profile.name!r} is {rows_are}: there is nothing to compare. Check a "
            "profile with what it was made from."
        )
    return ResidualReport(
        profile=profile.name,
        families=tuple(
            _residual(name, len(family), [e for rows in family.values() for e in rows])
            for name, family in sorted(errors.items())
        ),
        total=_residual("all", len(judged), everything),
        unjudged=tuple(
            sorted({n.split(".", 1)[0] for n in profile.operations if n not in judged | set(own)})
        ),
        own=tuple(own),
        goals=goals,
        rows_are=rows_are,
    )


def _same(operation: Operation, fresh: Operation) -> bool:
    """The same numbers; a table that a merge put on a finer grid is still the same function."""
    if (operation.axes, operation.values, operation.terms) == (fresh.axes, fresh.values, fresh.terms):
        return True
    if operation.terms or fresh.terms or len(operation.axes) != 2 or len(fresh.axes) != 2:
        return False
    finer = Grids(operation.axes[0].points, operation.axes[1].points, [operation.rows()])
    (x0, *_, x1), (y0, *_, y1) = (axis.points for axis in operation.axes)
    return all(
        math.isclose(finer.at(x, y)[0], value, rel_tol=1e-6)
        for x, row in zip(fresh.axes[0].points, fresh.values, strict=True)
        for y, value in zip(fresh.axes[1].points, row, strict=True)
        if x0 <= x <= x1 and y0 <= y <= y1
    )


def _some(names: Sequence[str]) -> str:
    """A few of many names."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _residual(family: str, operations: int, errors: list[float]) -> FamilyResidual:
    values = np.asarray(errors)
    return FamilyResidual(
        family, operations, len(errors), float(np.median(values)), float(np.quantile(values, 0.95))
    )
