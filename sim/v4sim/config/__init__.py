"""Deployments: what they are, how they are read, what the engine fills in.

Importing this package imports pydantic; nothing else in v4sim does.
"""

from __future__ import annotations

from v4sim.config.deployment import (
    CacheSection,
    Deployment,
    EngineSection,
    HardwareSection,
    ModelSection,
    ObjectiveSection,
    ParallelSection,
    RouterSection,
    SpeculationSection,
)
from v4sim.config.load import DEFAULT_PRESET, from_dict, load, parse_set, presets
from v4sim.config.resolve import RankLimits, rank_limits, resolve

__all__ = [
    "DEFAULT_PRESET",
    "CacheSection",
    "Deployment",
    "EngineSection",
    "HardwareSection",
    "ModelSection",
    "ObjectiveSection",
    "ParallelSection",
    "RankLimits",
    "RouterSection",
    "SpeculationSection",
    "from_dict",
    "load",
    "parse_set",
    "presets",
    "rank_limits",
    "resolve",
]
