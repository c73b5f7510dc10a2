"""One measurement: a point, how it was timed, what came out, and why it counts or does not.

status   ok · wrong (differs from its reference: no time) · rejected (breaks the roofline) · unsupported
         (does not compile, or not on this device) · failed (raised)
A row with a throttled sample or a drift between the passes keeps its time and its flag; a fit takes only
rows that are `usable`. Units: microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from v4calib.device import PREFERRED, Variant
from v4calib.grid import Point

STATUSES = ("ok", "wrong", "rejected", "unsupported", "failed")


@dataclass(frozen=True, slots=True)
class Row:
    """One pass over one variant of one point; `variant` is empty where nothing was timed."""

    point: Point
    variant: str
    number: int  # of the pass, from 1
    status: str
    reason: str = ""
    us: float | None = None
    ci: float | None = None
    samples: int = 0
    flags: tuple[str, ...] = ()
    sensors: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, int]:
        return self.point.key, self.variant, self.number

    @property
    def usable(self) -> bool:
        return self.status == "ok" and self.us is not None and "throttled" not in self.flags

    def as_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {"point": self.point.as_dict()}
        for name in self.__slots__[1:]:
            value = getattr(self, name)
            data[name] = list(value) if isinstance(value, tuple) else value
        return data

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Row:
        fields = {k: data[k] for k in cls.__slots__ if k in data and k not in ("point", "flags")}
        return cls(point=Point.of(data["point"]), flags=tuple(data.get("flags", ())), **fields)


@dataclass(frozen=True, slots=True)
class Measured:
    """One point after all passes: the time a fit takes, and how far the passes were apart."""

    point: Point
    variant: str
    us: float
    passes: int
    apart: float  # relative


def combine(rows: list[Row]) -> list[Measured]:
    """The mean over passes of every point's preferred variant; points in order of their keys."""
    return [found[0] for found in _by_point(rows).values()]


def every_variant(rows: list[Row]) -> list[Measured]:
    """The same for every variant of every point."""
    return [m for found in _by_point(rows).values() for m in found]


def _by_point(rows: list[Row]) -> dict[str, list[Measured]]:
    groups: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if row.usable:
            groups.setdefault(row.point.key, {}).setdefault(row.variant, []).append(row)
    order = [variant.label for variant in PREFERRED]
    out: dict[str, list[Measured]] = {}
    for key in sorted(groups):
        found = []
        for label in sorted(groups[key], key=order.index):
            times = [row.us for row in groups[key][label] if row.us is not None]
            mean = sum(times) / len(times)
            found.append(
                Measured(
                    groups[key][label][0].point,
                    label,
                    mean,
                    len(times),
                    (max(times) - min(times)) / mean if mean else 0.0,
                )
            )
        out[key] = found
    return out


def launch_us(rows: list[Row]) -> list[tuple[Point, float]]:
    """Eager minus graph of every point that has both hot: what a launch outside a graph costs."""
    found: dict[str, dict[str, Measured]] = {}
    for m in every_variant(rows):
        found.setdefault(m.point.key, {})[m.variant] = m
    graph, eager = Variant("graph", "hot").label, Variant("eager", "hot").label
    return [
        (both[graph].point, both[eager].us - both[graph].us)
        for both in found.values()
        if graph in both and eager in both
    ]
