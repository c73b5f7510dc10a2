"""Batch shapes to time: profiles of measured operations, compiled into a step cost."""

from __future__ import annotations

from v4sim.cost.base import KINDS, PARTS, ConstantCost, StepCost
from v4sim.cost.compile import compile_cost
from v4sim.cost.engine_constants import EngineConstants, engine_constants
from v4sim.cost.load import RankLoad
from v4sim.cost.profile import Profile, builtin_profiles, load_profile

__all__ = [
    "KINDS",
    "PARTS",
    "ConstantCost",
    "EngineConstants",
    "Profile",
    "RankLoad",
    "StepCost",
    "builtin_profiles",
    "compile_cost",
    "engine_constants",
    "load_profile",
]
