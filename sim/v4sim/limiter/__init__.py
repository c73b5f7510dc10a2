"""The limiter: the resource of which a little more improves the objective most.

What a run shows (queues, full pools, long parts of a step) is evidence; which resource limits is a
counterfactual. `study` asks it: the same calls, the same draws, one resource 10 % larger at a time.
"""

from __future__ import annotations

from v4sim.limiter.objective import OBJECTIVES, Objective, objective
from v4sim.limiter.resources import RESOURCES, Resource, resources
from v4sim.limiter.study import Study, draws_of, study

__all__ = [
    "OBJECTIVES",
    "RESOURCES",
    "Objective",
    "Resource",
    "Study",
    "draws_of",
    "objective",
    "resources",
    "study",
]
