"""Roofline-shaped fits: a floor that is known, and the larger of two legs above it; a sum of two terms.

Relative errors are minimised. For the larger of two legs, rows are given to the leg that bounds them,
each leg is the weighted least-squares slope of its rows, and the two steps repeat until no row changes
sides. A leg that never bounds cannot be read off the rows: it gets the value the caller passes (a
roofline) and is marked. The interval of a slope is 1.96 standard errors from the scatter of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class LegRow:
    """One measured row: time, the floor below both legs, and the two amounts of work."""

    us: float
    floor_us: float
    first: float
    second: float


@dataclass(frozen=True, slots=True)
class Leg:
    """A slope with the half-width of its interval and the rows that show it (0: not seen)."""

    slope: float
    half_width: float
    rows: int

    @property
    def words(self) -> str:
        if not self.rows:
            return "never bounds a measured row: a roofline"
        return f"± {self.half_width / self.slope:.1%} from {self.rows} rows" if self.slope else "0"


@dataclass(frozen=True, slots=True)
class TwoLegs:
    """max(first x slope, second x slope) above the floor."""

    first: Leg
    second: Leg

    def at(self, row: LegRow) -> float:
        return row.floor_us + max(self.first.slope * row.first, self.second.slope * row.second)

    def error(self, rows: Sequence[LegRow]) -> float:
        """95th percentile of the relative errors of rows."""
        return float(np.quantile([abs(self.at(r) / r.us - 1) for r in rows], 0.95)) if rows else 0.0


def two_legs(rows: Sequence[LegRow], unseen: tuple[float, float]) -> TwoLegs:
    """Fit both legs; `unseen` are slopes for a leg that no row shows."""
    first_rows = [_slope_of(r, r.first) for r in rows if r.first > 0]
    second_rows = [_slope_of(r, r.second) for r in rows if r.second > 0]
    # Where work of both kinds grows together each ratio is an upper bound of its leg.
    slopes = [_low(first_rows, unseen[0]), _low(second_rows, unseen[1])]
    sides: list[bool] = []
    legs = (Leg(unseen[0], 0.0, 0), Leg(unseen[1], 0.0, 0))
    for _ in range(_ROUNDS):
        chosen = [slopes[0] * r.first >= slopes[1] * r.second for r in rows]
        if chosen == sides:
            break
        sides = chosen
        of_first = [r for r, side in zip(rows, sides, strict=True) if side]
        of_second = [r for r, side in zip(rows, sides, strict=True) if not side]
        legs = (
            _leg([(r, r.first) for r in of_first], unseen[0]),
            _leg([(r, r.second) for r in of_second], unseen[1]),
        )
        slopes = [legs[0].slope, legs[1].slope]
    return TwoLegs(*legs)


def two_terms(rows: Sequence[LegRow]) -> tuple[Leg, Leg]:
    """floor + a x first + b x second, neither negative."""
    times = np.array([r.us for r in rows])
    design = np.array([[r.first, r.second] for r in rows]) / times[:, None]
    target = 1.0 - np.array([r.floor_us for r in rows]) / times
    best: tuple[float, list[int], np.ndarray] | None = None
    for columns in ([0, 1], [0], [1]):  # all faces of the positive quadrant
        part = design[:, columns]
        solution = np.linalg.lstsq(part, target, rcond=None)[0]
        if (solution < 0).any():
            continue
        loss = float(((part @ solution - target) ** 2).sum())
        if best is None or loss < best[0] - 1e-12:
            best = loss, columns, solution
    if best is None:
        return Leg(0.0, 0.0, len(rows)), Leg(0.0, 0.0, len(rows))
    loss, columns, solution = best
    part = design[:, columns]
    variance = loss / max(len(rows) - len(columns), 1)
    covariance = np.linalg.pinv(part.T @ part) * variance
    found = {
        c: Leg(float(solution[i]), 1.96 * math.sqrt(max(float(covariance[i, i]), 0.0)), len(rows))
        for i, c in enumerate(columns)
    }
    nothing = Leg(0.0, 0.0, len(rows))
    return found.get(0, nothing), found.get(1, nothing)


def _slope_of(row: LegRow, work: float) -> float:
    return max(row.us - row.floor_us, 0.0) / work


def _low(ratios: Sequence[float], otherwise: float) -> float:
    """A low quantile: the largest slope that few rows contradict."""
    return float(np.quantile(ratios, 0.1)) if ratios else otherwise


def _leg(rows: Sequence[tuple[LegRow, float]], unseen: float) -> Leg:
    if not rows:
        return Leg(unseen, 0.0, 0)
    work = np.array([w / r.us for r, w in rows])
    target = np.array([1.0 - r.floor_us / r.us for r, _ in rows])
    weight = float((work * work).sum())
    if weight <= 0:
        return Leg(unseen, 0.0, 0)
    slope = max(float((work * target).sum()) / weight, 0.0)
    left = target - slope * work
    variance = float((left * left).sum()) / max(len(rows) - 1, 1)
    return Leg(slope, 1.96 * math.sqrt(variance / weight), len(rows))
