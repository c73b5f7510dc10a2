"""The models that are described in `model/specs`, by name; a path to a TOML file is a model as well."""

from __future__ import annotations

from functools import cache
from importlib import resources

from v4sim.errors import ConfigError
from v4sim.model.spec import ModelSpec


def model_names() -> tuple[str, ...]:
    """Names of the built-in models, in alphabetic order."""
    folder = resources.files("v4sim.model") / "specs"
    return tuple(sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")))


@cache
def spec(name: str) -> ModelSpec:
    """The model of that name (or of that TOML file); a `ConfigError` that lists the choices otherwise."""
    if name in model_names():
        path = resources.files("v4sim.model") / "specs" / f"{name}.toml"
        with resources.as_file(path) as real:
            return ModelSpec.from_file(real)
    if name.endswith(".toml"):
        return ModelSpec.from_file(name)
    raise ConfigError(
        f"model.name = {name!r} is not a model that is described here; choose one of "
        f"{', '.join(model_names())}, or give the path of a TOML file like those in v4sim/model/specs."
    )
