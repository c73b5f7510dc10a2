"""Piecewise-linear tables: the only non-trivial function that the cost model may use.

`Line` is one variable: a right bisection finds the segment, then `slope * x + intercept`, which whoever works
on arrays does with its `pieces`, bit for bit the same. `Grids` is two variables, scalar only.
What lies outside the points: below the first point the first value holds, above the last one the last
segment goes on ("linear") or the last value holds ("hold"). Whoever uses a table watches its domain.

Leaves out: any other interpolation, and reading or checking files (see `profile`).
Units: those of the values given, microseconds in a profile and nanoseconds after compilation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

_WHOLE: Final = 4503599627370496.0  # 2^52: floats from here on are whole numbers


def whole(x: float) -> int:
    """`x` ≥ 0, as times inside a table's domain are, rounded half to even: `round` without a call of it."""
    return int((x + _WHOLE) - _WHOLE) if x < _WHOLE else int(x)


class Line:
    """y(x), piecewise linear over ascending points."""

    __slots__ = (
        "_cuts",
        "_cuts_array",
        "_intercepts",
        "_intercepts_array",
        "_slopes",
        "_slopes_array",
        "top",
    )

    def __init__(self, points: Sequence[float], values: Sequence[float], above: str = "linear") -> None:
        xs = [float(x) for x in points]
        ys = [float(y) for y in values]
        self.top = xs[-1]
        slopes, intercepts = [0.0], [ys[0]]
        for (x0, x1), (y0, y1) in zip(pairwise(xs), pairwise(ys), strict=True):
            slope = (y1 - y0) / (x1 - x0)
            slopes.append(slope)
            intercepts.append(y0 - slope * x0)
        # The last cut ends the table: after it the last slope goes on, or nothing changes any more.
        if above == "linear" or len(xs) == 1:
            cuts = xs[:-1]
        else:
            cuts = xs
            slopes.append(0.0)
            intercepts.append(ys[-1])
        self._cuts = cuts
        self._slopes = slopes
        self._intercepts = intercepts
        self._cuts_array = np.array(cuts, dtype=np.float64)
        self._slopes_array = np.array(slopes, dtype=np.float64)
        self._intercepts_array = np.array(intercepts, dtype=np.float64)

    def at(self, x: float) -> float:
        return self.on(bisect_right(self._cuts, x), x)

    def piece(self, x: float) -> int:
        """Which piece x lies on; lines over the same points have the same."""
        return bisect_right(self._cuts, x)

    def piece_from(self, piece: int, x: float) -> int:
        """`piece` of an x that lies on this one or on a later one."""
        cuts = self._cuts
        while piece < len(cuts) and cuts[piece] <= x:
            piece += 1
        return piece

    def on(self, piece: int, x: float) -> float:
        return self._slopes[piece] * x + self._intercepts[piece]

    @property
    def pieces(self) -> tuple[Float64, Float64, Float64]:
        """Cuts, and slope and intercept of each piece."""
        return self._cuts_array, self._slopes_array, self._intercepts_array


class Grids:
    """Several functions z(x, y) on one grid, bilinear, found together; scalar only.

    Below the first point the first one holds, past the last one the last cell goes on. Every cell keeps
    its four coefficients, so a point costs two bisections and a few operations a function.
    """

    __slots__ = ("_cells", "_x", "_y", "top_x", "top_y")

    def __init__(
        self, x: Sequence[float], y: Sequence[float], values: Sequence[Sequence[Sequence[float]]]
    ) -> None:
        self._x = [float(v) for v in x]
        self._y = [float(v) for v in y]
        self.top_x, self.top_y = self._x[-1], self._y[-1]
        self._cells = [
            [
                tuple(_cell(x0, x1, y0, y1, z[i][j : j + 2], z[i + 1][j : j + 2]) for z in values)
                for j, (y0, y1) in enumerate(pairwise(self._y))
            ]
            for i, (x0, x1) in enumerate(pairwise(self._x))
        ]

    def at(self, x: float, y: float) -> list[float]:
        xs, ys = self._x, self._y
        i = min(max(bisect_right(xs, x), 1), len(xs) - 1)
        j = min(max(bisect_right(ys, y), 1), len(ys) - 1)
        if x < xs[0]:
            x = xs[0]
        if y < ys[0]:
            y = ys[0]
        return [a + b * x + (c + d * x) * y for a, b, c, d in self._cells[i - 1][j - 1]]


def _cell(
    x0: float, x1: float, y0: float, y1: float, low: Sequence[float], high: Sequence[float]
) -> tuple[float, float, float, float]:
    """a + b x + (c + d x) y through the four corners."""
    slope_low, slope_high = (low[1] - low[0]) / (y1 - y0), (high[1] - high[0]) / (y1 - y0)
    start_low, start_high = low[0] - slope_low * y0, high[0] - slope_high * y0
    b = (start_high - start_low) / (x1 - x0)
    d = (slope_high - slope_low) / (x1 - x0)
    return start_low - b * x0, b, slope_low - d * x0, d
