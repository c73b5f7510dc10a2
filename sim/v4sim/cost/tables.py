"""Piecewise-linear tables: the only non-trivial function that the cost model may use.

`Line` is one variable with a scalar and a vector form that agree bit for bit (both find the segment by
a right bisection and then compute `slope * x + intercept`); `Grid` is two variables, scalar only.
What lies outside the points: below the first point the first value holds, above the last one the last
segment goes on ("linear") or the last value holds ("hold"). Whoever uses a table watches its domain.

Leaves out: any other interpolation, and reading or checking files (see `profile`).
Units: those of the values given, microseconds in a profile and nanoseconds after compilation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


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
        i = bisect_right(self._cuts, x)
        return self._slopes[i] * x + self._intercepts[i]

    def many(self, x: Float64) -> Float64:
        """The same for every element, bit for bit."""
        i = self._cuts_array.searchsorted(x, "right")
        out: Float64 = self._slopes_array[i] * x
        out += self._intercepts_array[i]
        return out


class Grid:
    """z(x, y), bilinear over ascending points; past the last point the last cell goes on."""

    __slots__ = ("_rows", "_x", "_y", "top_x", "top_y")

    def __init__(self, x: Sequence[float], y: Sequence[float], values: Sequence[Sequence[float]]) -> None:
        self._x = [float(v) for v in x]
        self._y = [float(v) for v in y]
        self._rows = [[float(v) for v in row] for row in values]
        self.top_x, self.top_y = self._x[-1], self._y[-1]

    def at(self, x: float, y: float) -> float:
        xs, ys = self._x, self._y
        i = min(max(bisect_right(xs, x), 1), len(xs) - 1)
        j = min(max(bisect_right(ys, y), 1), len(ys) - 1)
        x0, y0 = xs[i - 1], ys[j - 1]
        u = (x - x0) / (xs[i] - x0) if x > x0 else 0.0
        v = (y - y0) / (ys[j] - y0) if y > y0 else 0.0
        low, high = self._rows[i - 1], self._rows[i]
        a, b = low[j - 1], high[j - 1]
        left = a + (low[j] - a) * v
        right = b + (high[j] - b) * v
        return left + (right - left) * u
