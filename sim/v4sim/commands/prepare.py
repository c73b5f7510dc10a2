"""From the options of a command to a scenario, saying what was assumed where nothing was given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from v4sim.commands import arguments, talk

if TYPE_CHECKING:
    from v4sim.scenario import Scenario


def prepare(
    trace: Path,
    deployment: str | None,
    profile: str | None,
    settings: Sequence[str] | None,
    sessions: int | None,
    arrivals: str | None,
    window: str | None,
    seed: int,
) -> Scenario:
    """Everything that can be refused is refused here, before anything is simulated."""
    from v4sim import config
    from v4sim.capacity import pools
    from v4sim.cost import compile_cost, load_profile
    from v4sim.model import spec
    from v4sim.scenario import Scenario
    from v4traces import read_table

    workload = arguments.workload(sessions, arrivals, window)
    table = read_table(trace)
    deployed = config.resolve(
        config.load(config.DEFAULT_PRESET if deployment is None else deployment, settings or [])
    )
    model = spec(deployed.model.name)
    measured = load_profile(deployed.hardware.gpu if profile is None else profile)
    compile_cost(measured, deployed, model)
    workload, notes = workload.settled(table, deployed.num_ranks)
    for given, assumed in (
        (deployment, f"deployment: {deployed.name}"),
        (profile, f"profile: {measured.name}"),
    ):
        if given is None:
            talk.say(f"default {assumed}")
    talk.say(f"seed {seed}")
    for note in notes:
        talk.say(f"default workload: {note}")
    return Scenario(table, deployed, measured, pools(deployed, model), workload, seed)
