"""Small numerical tools of importers and fits: thinning, monotony, rounding.

Tables are dense and noisy; a profile is small and monotone (more work never takes less
time). Thinning drops a point while straight lines through the others stay within a relative error.

Units: none of their own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np

THIN_ERROR = 0.01  # of the value; what interpolation may add to a table
DIGITS = 4  # significant digits kept: far below the tables' own noise


def rounded(value: float) -> float:
    """Four significant digits, never negative."""
    return float(f"{max(value, 0.0):.{DIGITS}g}")


def interpolate(points: Sequence[float], values: Sequence[float], x: float) -> float:
    """Linear between points, the end segments go on."""
    i = min(max(bisect_right(points, x), 1), len(points) - 1)
    x0, x1 = points[i - 1], points[i]
    return values[i - 1] + (values[i] - values[i - 1]) * (x - x0) / (x1 - x0)


def rising(values: Sequence[float]) -> list[float]:
    """The nearest non-decreasing curve (least squares of relative errors, pooled violators).

    Noise may not make more work cheaper; one slow outlier may not make all larger sizes slow either.
    """
    blocks: list[tuple[float, float, int]] = []  # weighted mean, weight, length
    for value in values:
        mean, weight, length = float(value), 1.0 / max(float(value), 1e-9) ** 2, 1
        while blocks and blocks[-1][0] > mean:
            other, its_weight, its_length = blocks.pop()
            mean = (mean * weight + other * its_weight) / (weight + its_weight)
            weight, length = weight + its_weight, length + its_length
        blocks.append((mean, weight, length))
    return [mean for mean, _, length in blocks for _ in range(length)]


def rising_grid(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Non-decreasing along both axes: pooled along each, then a running maximum for what remains."""
    grid = np.asarray([rising(row) for row in rows], dtype=np.float64)
    grid = np.asarray([rising(column) for column in grid.T.tolist()], dtype=np.float64).T
    grid = np.maximum.accumulate(np.maximum.accumulate(grid, axis=1), axis=0)
    return [[float(v) for v in row] for row in grid]


def safe_beyond(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """A monotone grid whose last cells may be continued: more of both never takes less than more of each.

    A table is continued by its outermost cells; there the mixed difference must not be negative, or a product
    of two large sizes would come out negative. Values at the far edges are raised where noise made it so.
    """
    grid = [list(row) for row in rows]
    last_i, last_j = len(grid) - 1, len(grid[0]) - 1
    for i in range(1, last_i + 1):
        for j in range(1, last_j + 1):
            if i == last_i or j == last_j:
                grid[i][j] = max(grid[i][j], grid[i - 1][j] + grid[i][j - 1] - grid[i - 1][j - 1])
    return grid


def thin(curve: Mapping[int, float], error: float = THIN_ERROR) -> tuple[list[int], list[float]]:
    """The points of a monotone curve that linear interpolation needs, and their rounded values."""
    points = sorted(curve)
    values = rising([curve[p] for p in points])
    keep = {0, len(points) - 1}
    spans = [(0, len(points) - 1)]
    while spans:
        low, high = spans.pop()
        worst, where = error, -1
        for i in range(low + 1, high):
            share = (points[i] - points[low]) / (points[high] - points[low])
            guess = values[low] + (values[high] - values[low]) * share
            miss = abs(guess - values[i]) / max(values[i], 1e-9)
            if miss > worst:
                worst, where = miss, i
        if where >= 0:
            keep.add(where)
            spans += [(low, where), (where, high)]
    chosen = sorted(keep)
    return [points[i] for i in chosen], [rounded(values[i]) for i in chosen]
