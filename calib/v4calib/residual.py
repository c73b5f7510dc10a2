"""Residuals of a profile against the published rows that are not nodes of its tables.

The import is made again from the same package. Operations of the profile that differ from it (measured on
your own GPUs, or edited) are listed and left out, because published rows do not judge them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from v4calib.aic.build import draft_profile
from v4calib.aic.source import FOLDERS, Source
from v4calib.errors import CalibError
from v4sim.cost.profile import Profile

MEDIAN_GOAL, P95_GOAL = 0.05, 0.15


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
    unjudged: tuple[str, ...]  # no published row beside the nodes: an assumed error
    own: tuple[str, ...]

    @property
    def good(self) -> bool:
        return self.total.median <= MEDIAN_GOAL and self.total.p95 <= P95_GOAL

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
            lines.append(f"  not from the published tables: {', '.join(self.own)}")
        verdict = "within" if self.good else "above"
        lines.append(f"  {verdict} the goal of {MEDIAN_GOAL:.0%} median and {P95_GOAL:.0%} p95")
        return "\n".join(lines)


def residuals(profile: Profile, source: Source) -> ResidualReport:
    """Compare a profile with the published rows of its GPU."""
    if profile.gpu not in FOLDERS:
        raise CalibError(
            f"Profile {profile.name!r} is of gpu {profile.gpu!r}, which the published tables do not have: "
            f"they have {', '.join(FOLDERS)}."
        )
    draft = draft_profile(profile.gpu, source)
    fresh = draft.profile("")
    own = sorted(
        name
        for name, operation in profile.operations.items()
        if not fresh.has(name)
        or (operation.axes, operation.values, operation.terms)
        != (fresh.operations[name].axes, fresh.operations[name].values, fresh.operations[name].terms)
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
            f"No operation of profile {profile.name!r} comes from the published tables: there is nothing to "
            "compare. Check a profile made by `v4calib import aiconfigurator`."
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
    )


def _residual(family: str, operations: int, errors: list[float]) -> FamilyResidual:
    values = np.asarray(errors)
    return FamilyResidual(
        family, operations, len(errors), float(np.median(values)), float(np.quantile(values, 0.95))
    )
