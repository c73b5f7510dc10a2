"""The three built-in models."""

from __future__ import annotations

import pytest
from hypothesis import settings

from v4sim.model import ModelSpec, model_names, spec

# A law is not a stopwatch: a busy machine must not fail it.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture
def flash() -> ModelSpec:
    return spec("v4-flash")


@pytest.fixture
def pro() -> ModelSpec:
    return spec("v4-pro")


@pytest.fixture
def v41() -> ModelSpec:
    return spec("v4.1-flash")


@pytest.fixture(params=model_names())
def any_model(request: pytest.FixtureRequest) -> ModelSpec:
    return spec(request.param)
