"""Errors of the simulator; the tree is described in `v4traces.errors`."""

from __future__ import annotations

from v4traces.errors import V4Error


class ConfigError(V4Error):
    """A deployment, workload or option has a value that the rules do not allow."""


class CapacityError(V4Error):
    """The deployment cannot hold what it is asked to hold (weights, one prompt, a pool)."""


class ProfileError(V4Error):
    """A calibration profile is missing, malformed, or measured for something else."""


class RunError(V4Error):
    """A run directory cannot be written or read."""


class LawError(V4Error):
    """A law of the simulation was broken: a defect of v4sim, never of the input."""


__all__ = ["CapacityError", "ConfigError", "LawError", "ProfileError", "RunError", "V4Error"]
