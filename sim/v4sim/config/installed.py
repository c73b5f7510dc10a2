"""The vLLM that is installed beside v4sim, by its metadata: nothing is imported to know it."""

from __future__ import annotations

from importlib import metadata

from v4sim.errors import ConfigError

TRIED = "0.33.0"  # with engine.scheduler = 'vllm-native'


def installed_version() -> str:
    """Its version; ConfigError if there is none."""
    try:
        return metadata.version("vllm")
    except metadata.PackageNotFoundError:
        raise ConfigError(
            "engine.scheduler = 'vllm-native' runs the vLLM that is installed beside v4sim, and there is "
            f"none: install v4sim into the environment of your vLLM (tried with {TRIED}; no GPU is needed), "
            "or leave engine.scheduler out."
        ) from None
