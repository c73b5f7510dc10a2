"""The sections of the page in reading order, one file each, one function `build(run)` in each."""

from __future__ import annotations

from v4reports.run import Run
from v4reports.sections import (
    admission,
    cache,
    economy,
    latency,
    limiter,
    origin,
    ranks,
    speculation,
    steptime,
    window,
)
from v4reports.sections.base import Section, SectionFunction

SECTIONS: tuple[SectionFunction, ...] = (
    latency.build,
    limiter.build,
    economy.build,
    steptime.build,
    cache.build,
    ranks.build,
    admission.build,
    speculation.build,
    window.build,
    origin.build,
)


def build_all(run: Run) -> list[Section]:
    """Those sections that this run has something for."""
    built = (build(run) for build in SECTIONS)
    return [section for section in built if section is not None]


__all__ = ["SECTIONS", "Section", "build_all"]
