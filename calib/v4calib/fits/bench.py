"""Measured points by operation and size, fitted and held-out apart.

`curve` is a function of one size over points that are not held out; asking outside of it is an error of the
fit, never an extrapolation. Units: microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from v4calib.curves import interpolate, rising
from v4calib.device import DeviceFacts
from v4calib.draft import Draft
from v4calib.rows import Measured

SPREAD = 0.10  # error assumed of a table without held-out rows


class Curve:
    """A monotone function of one size, inside its domain only."""

    def __init__(self, points: Sequence[float], values: Sequence[float]) -> None:
        self.points = list(points)
        self.values = rising(values)

    def covers(self, x: float) -> bool:
        return len(self.points) > 1 and self.points[0] <= x <= self.points[-1]

    def at(self, x: float) -> float:
        assert self.covers(x), (x, self.points)
        return interpolate(self.points, self.values, x)


class Bench:
    """All measured points of a run."""

    def __init__(self, measured: Sequence[Measured], facts: DeviceFacts) -> None:
        self.measured = list(measured)
        self.facts = facts
        self.skipped: dict[str, str] = {}  # operation of the profile: why it is not in it

    def rows(
        self, operation: str, model: str, held_out: bool | None = None, **fixed: int | str
    ) -> list[Measured]:
        """Points of an operation with these sizes; `held_out` None: all."""
        return [
            m
            for m in self.measured
            if m.point.operation == operation
            and m.point.model in (model, "any")
            and (held_out is None or m.point.held_out == held_out)
            and all(dict(m.point.sizes).get(k) == v for k, v in fixed.items())
        ]

    def curve(self, operation: str, model: str, axis: str, **fixed: int | str) -> Curve | None:
        """Over one size; None with fewer than two points."""
        found: dict[int, list[float]] = {}
        for m in self.rows(operation, model, held_out=False, **fixed):
            found.setdefault(m.point[axis], []).append(m.us)
        if len(found) < 2:
            return None
        points = sorted(found)
        return Curve(points, [sum(found[p]) / len(found[p]) for p in points])

    def skip(self, name: str, reason: str) -> None:
        self.skipped[name] = reason


def add_curve(
    draft: Draft, name: str, axis: str, curve: Curve, source: str, note: str, times: float = 1.0
) -> None:
    """A curve as a table."""
    draft.add_table(name, {axis: curve.points}, [times * v for v in curve.values], source, note, SPREAD)


def compare_curve(
    draft: Draft,
    bench: Bench,
    name: str,
    curve: Curve,
    axis: str,
    operation: str,
    model: str,
    **fixed: int | str,
) -> None:
    """The held-out points of a curve against it."""
    for m in bench.rows(operation, model, held_out=True, **fixed):
        if curve.covers(m.point[axis]):
            draft.compare(name, curve.at(m.point[axis]), m.us)
