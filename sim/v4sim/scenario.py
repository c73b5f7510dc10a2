"""A scenario: everything one simulation is made from, so that it can be run again with one thing changed.

Plain data. `deployment` is resolved and `workload` settled; `pools` are stated, not planned again, so that
a change of one resource does not move the others through the memory plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from v4sim.engine.probe import Probe

if TYPE_CHECKING:
    from v4sim.capacity import RankPools
    from v4sim.config import Deployment
    from v4sim.cost.base import StepCost
    from v4sim.cost.profile import Profile
    from v4sim.metrics.epochs import EpochRecorder
    from v4sim.model import ModelSpec
    from v4sim.results import RunResult
    from v4sim.workload import WorkloadOptions
    from v4traces import TraceTable


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """A trace on a deployment under a load. Same scenario, same result, to the bit."""

    table: TraceTable
    deployment: Deployment
    profile: Profile
    pools: RankPools
    workload: WorkloadOptions
    seed: int

    @property
    def spec(self) -> ModelSpec:
        from v4sim.model import spec

        return spec(self.deployment.model.name)

    def cost(self) -> StepCost:
        """A step cost of its own: it notes which domains a run left."""
        from v4sim.cost import compile_cost

        return compile_cost(self.profile, self.deployment, self.spec)

    def run(
        self,
        cost: StepCost | None = None,
        *,
        stepwise: bool = False,
        probes: Sequence[Probe] = (),
        epochs: EpochRecorder | None = None,
    ) -> RunResult:
        from v4sim import simulate

        return simulate.run(
            *(self.table, self.deployment, cost or self.cost(), self.workload),
            seed=self.seed,
            stepwise=stepwise,
            pools=self.pools,
            spec=self.spec,
            probes=probes,
            epochs=epochs,
        )
