"""Deployments by preset name with their model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings

from v4sim.capacity import RankPools, pools
from v4sim.config import DEFAULT_PRESET, load
from v4sim.model import spec

Plan = Callable[..., RankPools]

# A law is not a stopwatch: a busy machine must not fail it.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture
def plan() -> Plan:
    """plan("section.key=value", ..., preset=NAME) → the pools of one rank."""

    def made(*sets: str, preset: str = DEFAULT_PRESET) -> RankPools:
        deployment = load(preset, sets)
        return pools(deployment, spec(deployment.model.name))

    return made
