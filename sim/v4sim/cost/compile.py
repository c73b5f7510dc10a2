"""From a profile and a deployment to a `StepCost`.

Checks that the profile is of the deployment's GPU, draws one inside its residual errors if asked, and
builds the compiled cost. Anything the profile does not hold for exactly this model, engine and cut is a
`ProfileError` here, before anything runs, and so are times that cannot be meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from v4sim.cost.base import StepCost
from v4sim.cost.engine_constants import engine_constants
from v4sim.cost.load import RankLoad
from v4sim.cost.profile import Profile
from v4sim.cost.step import ProfileCost
from v4sim.errors import ProfileError

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.model import ModelSpec

# A processor that emulates the model may need minutes for a step of one sequence; hours are a wrong unit.
LONGEST_LONE_STEP_S = 3600.0


def compile_cost(
    profile: Profile, deployment: Deployment, spec: ModelSpec, draw_seed: int | None = None
) -> StepCost:
    """The step cost of a resolved deployment; with `draw_seed`, of one plausible profile."""
    gpu = deployment.hardware.gpu
    if profile.gpu != gpu:
        raise ProfileError(
            f"Profile {profile.name!r} was made for gpu {profile.gpu!r}, the deployment runs on {gpu!r}: "
            f"choose the profile of {gpu}, or set hardware.gpu = {profile.gpu!r}."
        )
    constants = engine_constants(deployment.engine.kind)
    if draw_seed is not None:
        profile, constants = profile.draw(draw_seed), constants.draw(draw_seed)
    cost = ProfileCost(profile, deployment, spec, constants)
    _must_be_plausible(cost, profile, deployment)
    return cost


def _must_be_plausible(cost: StepCost, profile: Profile, deployment: Deployment) -> None:
    idle = [RankLoad(0, 0, 0)] * (deployment.parallel.attention_dp - 1)
    step_s = sum(cost.step([RankLoad(1, 1, 1), *idle], deployment.verify_width, "decode")) / 1e9
    if step_s > LONGEST_LONE_STEP_S:
        raise ProfileError(
            f"One decode step of a single short sequence would take {step_s:,.0f} s with profile "
            f"{profile.name!r} and engine.cpu_step_us; more than {LONGEST_LONE_STEP_S:,.0f} s is no step. "
            "Times in a profile are microseconds: check its unit."
        )
