"""The engine that is installed beside v4sim, by its metadata: nothing is imported to know it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

from v4sim.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Native:
    """An engine whose own scheduler can decide: its kind, its name, and the version that was tried."""

    kind: str
    name: str
    tried: str

    @property
    def scheduler(self) -> str:
        return f"{self.kind}-native"


NATIVE = {
    native.scheduler: native
    for native in (Native("vllm", "vLLM", "0.33.0"), Native("sglang", "SGLang", "0.5.23"))
}


def installed_version(scheduler: str) -> str:
    """Version of the engine behind `engine.scheduler`; ConfigError if there is none."""
    native = NATIVE[scheduler]
    try:
        return metadata.version(native.kind)
    except metadata.PackageNotFoundError:
        raise ConfigError(
            f"engine.scheduler = {scheduler!r} runs the {native.name} that is installed beside v4sim, and "
            f"there is none: install v4sim into the environment of your {native.name} (tried with "
            f"{native.tried}; no GPU is needed), or leave engine.scheduler out."
        ) from None


def unlike_tried(scheduler: str, error: Exception) -> ConfigError:
    """The error where the installed engine does not offer what is asked of it."""
    native = NATIVE[scheduler]
    line = str(error).strip().partition("\n")[0].rstrip(".")
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] != native.kind:
        return ConfigError(
            f"The installed {native.name} {installed_version(scheduler)} cannot be imported, as "
            f"engine.scheduler = {scheduler!r} asks for: {line}. Install it with what it depends on, or "
            "leave engine.scheduler out."
        )
    return ConfigError(
        f"The installed {native.name} {installed_version(scheduler)} does not offer what engine.scheduler = "
        f"{scheduler!r} asks of it (tried with {native.tried}): {type(error).__name__}: {line}. Install that "
        "version, or leave engine.scheduler out."
    )
