"""What a figure hands to the page: a drawing with its words, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from v4reports.run import Run


@dataclass(frozen=True, slots=True)
class Chart:
    """`svg` is a safe element; `wide_svg` the same drawn for a wide screen, where that is worth it."""

    slug: str
    title: str
    caption: str
    svg: str
    wide_svg: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """The run does not hold what this figure shows; `reason` is a sentence for the reader."""

    slug: str
    title: str
    reason: str


FigureFunction = Callable[[Run], Chart | Absent]
