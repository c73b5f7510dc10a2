"""Two passes in different orders: did the device change while it was measured?

Every point is timed once a pass. If the second pass is slower as a whole, the device was warming,
throttled or shared, and no repeat inside a pass would have shown it. The test is on the logarithms of
pass 2 / pass 1 over all points: a median beyond 2 % that a sign test does not put down to chance is
drift. A single point whose passes are apart by more than 10 % is unstable. Both are flags: they are
reported, and widen residuals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from v4calib.rows import Row, every_variant
from v4calib.timing import median

SHIFT = 0.02
UNSTABLE = 0.10
_CHANCE = 0.01


@dataclass(frozen=True, slots=True)
class Drift:
    """Pass 2 against pass 1 over all points, and the points that moved by themselves."""

    points: int
    ratio: float
    chance: float  # probability of so one-sided a result without drift
    unstable: tuple[str, ...]

    @property
    def found(self) -> bool:
        return abs(self.ratio - 1.0) > SHIFT and self.chance < _CHANCE

    def text(self) -> str:
        if not self.points:
            return "drift: only one pass, not tested"
        verdict = "the device drifted" if self.found else "no drift"
        unstable = f"; {len(self.unstable)} points moved by more than {UNSTABLE:.0%}" if self.unstable else ""
        return f"drift: {verdict}, pass 2 / pass 1 = {self.ratio:.3f} over {self.points} points{unstable}"


def drift(rows: list[Row]) -> Drift:
    """Compare the passes."""
    first = {(r.point.key, r.variant): r.us for r in rows if r.usable and r.number == 1}
    logs = []
    for row in rows:
        before = first.get((row.point.key, row.variant))
        if row.usable and row.number == 2 and row.us and before:
            logs.append(math.log(row.us / before))
    unstable = tuple(f"{m.point.key} {m.variant}" for m in every_variant(rows) if m.apart > UNSTABLE)
    if not logs:
        return Drift(0, 1.0, 1.0, unstable)
    up = sum(1 for value in logs if value > 0)
    down = sum(1 for value in logs if value < 0)
    return Drift(len(logs), math.exp(median(logs)), _sign_test(up, down), unstable)


def _sign_test(up: int, down: int) -> float:
    """Two-sided probability of a split at least this uneven if both directions are equally likely."""
    n, k = up + down, min(up, down)
    tail = sum(math.comb(n, i) for i in range(k + 1))
    return min(1.0, 2.0 * (tail / (1 << n)))
