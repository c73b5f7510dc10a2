"""Distributions as tables of quantiles.

A table names values at probabilities and is linear between them: the median in the table is the median
of the sample, whatever the shape, which no fitted lognormal gives. A value that stands at two
probabilities is an atom. Linear pieces put slightly too much mass in a convex tail, so tails need
close points. Units are those of the values.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from v4traces.errors import TraceError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Values at probabilities from 0 to 1, both rising."""

    probabilities: tuple[float, ...]
    values: tuple[float, ...]
    _p: Floats = field(init=False, repr=False, compare=False)
    _v: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        p, v = np.array(self.probabilities, dtype=np.float64), np.array(self.values, dtype=np.float64)
        if p.shape != v.shape or p.size < 2:
            raise TraceError(
                f"a table of quantiles has {p.size} probabilities and {v.size} values; it needs one value"
                " per probability, and at least two."
            )
        if p[0] != 0.0 or p[-1] != 1.0 or (np.diff(p) <= 0).any() or not (np.diff(v) >= 0).all():
            raise TraceError(
                f"the table of quantiles {self.probabilities} -> {self.values} must run from probability 0"
                " to 1, probabilities rising and values not falling. Sort it and give both ends."
            )
        object.__setattr__(self, "_p", p)
        object.__setattr__(self, "_v", v)

    def at(self, u: Floats) -> Floats:
        """The values at the probabilities `u`."""
        return np.interp(u, self._p, self._v)

    def one(self, u: float) -> float:
        """The value at one probability."""
        return float(np.interp(u, self._p, self._v))

    def mean(self) -> float:
        """The exact mean of the piecewise linear distribution."""
        return float(np.sum(np.diff(self._p) * (self._v[1:] + self._v[:-1])) / 2.0)

    def share_below(self, value: float) -> float:
        """P(X < value); an atom at `value` is not below it."""
        at = int(np.searchsorted(self._v, value, side="left"))
        if at == 0:
            return 0.0
        if at == self._v.size:
            return 1.0
        run = self._v[at] - self._v[at - 1]
        return float(self._p[at - 1] + (self._p[at] - self._p[at - 1]) * (value - self._v[at - 1]) / run)

    def capped(self, most: float) -> Quantiles:
        """The same with every value above `most` moved to it: an atom at the cap."""
        return Quantiles(self.probabilities, tuple(min(value, most) for value in self.values))


def quantiles(text: str) -> Quantiles:
    """A table the way it is printed: `p0 3, p50 44, p90 149, p100 514`."""
    try:
        pairs = [part.split() for part in text.split(",")]
        points = [(float(percent.removeprefix("p")) / 100.0, float(value)) for percent, value in pairs]
    except ValueError:
        raise TraceError(
            f"{text!r} is not a table of quantiles. Write percentage and value pairs: 'p0 1, p50 4, p100 9'."
        ) from None
    return Quantiles(tuple(p for p, _ in points), tuple(v for _, v in points))


@dataclass(frozen=True, slots=True)
class Steps:
    """A rate that depends on one number: rates[k] holds between edges[k − 1] and edges[k]."""

    edges: tuple[float, ...]
    rates: tuple[float, ...]
    _edges: Floats = field(init=False, repr=False, compare=False)
    _rates: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        edges, rates = np.array(self.edges, dtype=np.float64), np.array(self.rates, dtype=np.float64)
        if rates.size != edges.size + 1 or (np.diff(edges) <= 0).any():
            raise TraceError(
                f"a step table with edges {self.edges} needs rising edges and {edges.size + 1} rates, not"
                f" {rates.size}: one below the first edge, one per interval, one from the last edge on."
            )
        object.__setattr__(self, "_edges", edges)
        object.__setattr__(self, "_rates", rates)

    def at(self, x: Floats) -> Floats:
        """The rates at `x`; an edge belongs to the interval above it."""
        return np.asarray(self._rates[np.searchsorted(self._edges, x, side="right")])

    def one(self, x: float) -> float:
        """The rate at one number."""
        return self.rates[bisect_right(self.edges, x)]
