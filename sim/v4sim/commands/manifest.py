"""The manifest of a run: everything that is needed to make the same bytes again, and nothing of the machine.

Files are named without their folders and identified by hashes. Wall clock, user and host do not enter.
"""

from __future__ import annotations

import hashlib
import platform
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING, Any

from v4sim import __version__

if TYPE_CHECKING:
    from v4sim.scenario import Scenario


def manifest(scenario: Scenario) -> dict[str, Any]:
    """The deployment in it is the resolved one, so that a later default cannot change what this run was."""
    from v4sim.cost.profile import dump_profile

    trace, profile = scenario.table, scenario.profile
    return {
        "v4sim_version": __version__,
        "seed": scenario.seed,
        "trace": {
            "name": trace.path,
            "sha256": trace.sha256,
            "calls": trace.n,
            "sessions": len(trace.session_names),
            "source_format": trace.metadata.source_format,
            "class": trace.metadata.trace_class,
        },
        "profile": {
            "name": profile.name,
            "gpu": profile.gpu,
            "sha256": hashlib.sha256(dump_profile(profile).encode()).hexdigest(),
        },
        "deployment": scenario.deployment.options(),
        "workload": asdict(scenario.workload),
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("numpy", "pyarrow", "simpy")},
        },
    }
