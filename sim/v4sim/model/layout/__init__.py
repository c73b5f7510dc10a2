"""Byte layouts by name: `ideal`, `sglang`, `vllm`. Never one hidden constant.

`layout(name, spec, index_dtype)` makes one.
"""

from __future__ import annotations

from v4sim.errors import ConfigError
from v4sim.model.layout.base import Family, Layout, StateRing, history_families, state_bytes, state_rings
from v4sim.model.layout.ideal import IdealLayout
from v4sim.model.layout.sglang import SglangLayout
from v4sim.model.layout.vllm import VllmLayout
from v4sim.model.spec import ModelSpec

_LAYOUTS: dict[str, type[Layout]] = {cls.name: cls for cls in (IdealLayout, SglangLayout, VllmLayout)}


def layout_names() -> tuple[str, ...]:
    return tuple(_LAYOUTS)


def layout(name: str, spec: ModelSpec, index_dtype: str, page_tokens: int = 256) -> Layout:
    """The layout of that name for a model; a `ConfigError` that lists the choices otherwise."""
    if name not in _LAYOUTS:
        raise ConfigError(f"{name!r} is not a byte layout; choose one of {', '.join(_LAYOUTS)}.")
    if index_dtype not in spec.index_bytes:
        raise ConfigError(
            f"index_dtype = {index_dtype!r}: {spec.name} has {' or '.join(spec.index_dtypes)} index keys."
        )
    return _LAYOUTS[name](spec, index_dtype, page_tokens)


__all__ = [
    "Family",
    "IdealLayout",
    "Layout",
    "SglangLayout",
    "StateRing",
    "VllmLayout",
    "history_families",
    "layout",
    "layout_names",
    "state_bytes",
    "state_rings",
]
