"""What an engine's own scheduler (`engine.scheduler = …-native`) would not read: refused, with a way out."""

from __future__ import annotations

from v4sim.config.deployment import Deployment, changed
from v4sim.config.installed import NATIVE, installed_version
from v4sim.model import ModelSpec
from v4sim.model.hardware import GpuSpec

# Options that the adapter does not hand over.
_NOT_HANDED = {
    "vllm-native": ("prefill_schedule_interval",),
    "sglang-native": ("prefill_delayer", "strip_output_cache"),
}


def native_scheduler(d: Deployment, spec: ModelSpec, device: GpuSpec) -> str | None:
    e = d.engine
    if e.scheduler == "modelled":
        return None
    chosen = f"engine.scheduler = {e.scheduler!r}"
    native = NATIVE[e.scheduler]
    if e.kind != native.kind:
        return f"{chosen} is {native.name}'s own: set engine.kind = {native.kind!r} with it."
    if e.version is not None and e.version != installed_version(e.scheduler):
        return (
            f"engine.version = {e.version!r}, but {chosen} runs the {native.name} "
            f"{installed_version(e.scheduler)} that is installed: leave engine.version out."
        )
    if e.swa_veto != "strict":
        return (
            f"engine.swa_veto = {e.swa_veto!r}: {native.name}'s own cache says which hits are legal; "
            "leave it out."
        )
    refused = [f"engine.{key}" for key in _NOT_HANDED[e.scheduler] if changed(e, key)]
    if d.speculation.adaptive:
        refused.append("speculation.adaptive")
    if d.cache.identity:
        refused.append("cache.identity")
    if refused:
        return f"{refused[0]} is not handed to {chosen}: leave one of them out."
    if spec.compressor.kind != "gated":
        return f"{chosen} knows the cache of DeepSeek-V4, not that of {spec.name}: leave it out."
    return None
