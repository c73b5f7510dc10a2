"""`v4sim presets`: the deployments that need no file of your own, the default first."""

from __future__ import annotations


def presets() -> None:
    """List the built-in deployments."""
    from v4sim import config

    for name in config.presets():
        print(name + ("  (default)" if name == config.DEFAULT_PRESET else ""))
