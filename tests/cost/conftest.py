"""Deployments compiled with the built-in profiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from v4sim.config import resolve
from v4sim.config.deployment import Deployment
from v4sim.cost import Profile, StepCost, compile_cost, load_profile
from v4sim.model import spec

Compile = Callable[..., StepCost]


@pytest.fixture(scope="session")
def profiles() -> Callable[[str], Profile]:
    loaded: dict[str, Profile] = {}

    def get(name: str) -> Profile:
        if name not in loaded:
            loaded[name] = load_profile(name)
        return loaded[name]

    return get


@pytest.fixture(scope="session")
def deploy() -> Callable[..., Deployment]:
    """A resolved deployment from a few choices: `deploy(gpu="h200", tp=4, spec=("mtp", 1))`."""

    def make(
        gpu: str = "b200",
        model: str = "v4-flash",
        tp: int = 1,
        dp: int = 4,
        ep: int = 4,
        engine: str = "sglang",
        spec: tuple[str, int] = ("off", 0),
        index: str | None = None,
        weights: str | None = None,
        **engine_options: Any,
    ) -> Deployment:
        return resolve(
            Deployment.model_validate(
                {
                    "model": {"name": model, "index_dtype": index, "weights": weights},
                    "hardware": {"gpu": gpu, "num_gpus": tp * dp},
                    "parallel": {"attention_tp": tp, "attention_dp": dp, "ep": ep},
                    "engine": {"kind": engine, **engine_options},
                    "speculation": {"kind": spec[0], "draft_tokens": spec[1]},
                }
            )
        )

    return make


@pytest.fixture(scope="session")
def compiled(deploy: Callable[..., Deployment], profiles: Callable[[str], Profile]) -> Compile:
    """The step cost of `deploy(...)`; `profile=` replaces the built-in one."""

    def make(profile: Profile | None = None, **choices: Any) -> StepCost:
        deployment = deploy(**choices)
        found = profile or profiles(deployment.hardware.gpu)
        return compile_cost(found, deployment, spec(deployment.model.name))

    return make
