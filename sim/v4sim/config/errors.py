"""From a pydantic report to one paragraph: value, rule and way out, nearest legal key first."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from v4sim.config.deployment import Deployment
from v4sim.errors import ConfigError

# Documented by the engines, and refused here because nothing in the simulator would act on them.
UNMODELLED: Mapping[str, str] = {
    "pp_size": "pipeline parallelism is not modelled",
    "enable_two_batch_overlap": "two-batch overlap is not modelled",
    "enable_hisparse": "HiSparse is not modelled yet; the cache stays on the device",
    "hisparse_config": "HiSparse is not modelled yet; the cache stays on the device",
    "enable_hierarchical_cache": "host and storage tiers are not modelled yet; the cache stays on the device",
    "hicache_ratio": "host and storage tiers are not modelled yet; the cache stays on the device",
    "hicache_size": "SGLang refuses it for V4 as well, and host tiers are not modelled yet",
    "hicache_write_policy": "host and storage tiers are not modelled yet; the cache stays on the device",
    "hicache_io_backend": "host and storage tiers are not modelled yet; the cache stays on the device",
    "hicache_mem_layout": "host and storage tiers are not modelled yet; the cache stays on the device",
    "hicache_storage_prefetch_policy": "storage tiers are not modelled yet",
    "disaggregation_mode": "prefill/decode disaggregation is not modelled yet",
    "load_balance_method": "the choice of rank is `router.policy` here",
    "data_parallel_rank": "the choice of rank is `router.policy` here",
    "enable_priority_scheduling": "a trace's priorities always order the queue; only short memory preempts",
    "max_num_partial_prefills": "vLLM V1 does not read it; use long_prefill_token_threshold",
    "max_long_partial_prefills": "vLLM V1 does not read it; use long_prefill_token_threshold",
    "prefix_cache_retention_interval": "it is `engine.window_retention` here: replay is 0, all is None",
    "queue_min_ratio": "only the slot rule of the prefill delayer is modelled",
    "max_delay_ms": "only the slot rule of the prefill delayer is modelled",
    "min_free_slots": "it acts for DFlash only, and no V4 model uses DFlash",
    "stream_interval": "every token is reported when its step ends; client-side batching is not modelled",
    "sleep_on_idle": "it costs no GPU time; an idle scheduler is not priced",
    "chunked_prefill_size": "it is `engine.chunked_prefill_tokens` here",
    "cuda_graph_backend_prefill": "prefill graphs with breaks are not modelled (off for V4 in SGLang)",
    "disable_prefill_cuda_graph": "prefill graphs are off for V4 in any case",
    "max_running_requests": "it is `engine.max_running` here",
    "mem_fraction_static": "it is `engine.mem_fraction` here",
    "gpu_memory_utilization": "it is `engine.mem_fraction` here",
    "max_num_batched_tokens": "it is `engine.max_batched_tokens` here",
    "schedule_conservativeness": "it is `engine.conservativeness` here",
    "swa_full_tokens_ratio": "it is `engine.swa_full_ratio` here",
    "page_size": "it is `engine.page_tokens` here",
    "block_size": "it is `engine.page_tokens` here",
    "scheduler_reserve_full_isl": "it is `engine.reserve_full_isl` here",
}


def legal_keys() -> tuple[str, ...]:
    """Every key of a deployment, dotted, in the order of the sections."""
    keys: list[str] = []
    for name, field in Deployment.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            keys.extend(f"{name}.{leaf}" for leaf in section.model_fields)
        else:
            keys.append(name)
    return tuple(keys)


def unknown_key(key: str, where: str) -> ConfigError:
    """The error for a key that no deployment has: why it is refused, or the nearest one that exists."""
    leaf = key.rsplit(".", 1)[-1]
    reason = UNMODELLED.get(leaf.replace("-", "_"))
    if reason is not None:
        return ConfigError(f"{key} ({where}) cannot be set: {reason}.")
    keys = legal_keys()
    sections = list(Deployment.model_fields)
    if "." not in key:
        own = [k for k in keys if k.startswith(key + ".")]
        if own:
            return ConfigError(f"{key!r} ({where}) is a section, not a key: set one of {', '.join(own)}.")
        near = difflib.get_close_matches(key, [*sections, *(k.rsplit(".", 1)[-1] for k in keys)], 1, 0.5)
        hint = f"The nearest is {near[0]!r}" if near else f"There are {', '.join(sections)}"
        by_leaf = [k for k in keys if k.rsplit(".", 1)[-1] == key]
        if by_leaf:
            hint = f"Write it in its section: {by_leaf[0]!r}"
        return ConfigError(f"{key!r} ({where}) is not a section or key of a deployment. {hint}.")
    section = key.split(".", 1)[0]
    leaves = {k.rsplit(".", 1)[-1]: k for k in reversed(keys)}
    leaves.update({k.rsplit(".", 1)[-1]: k for k in keys if k.startswith(section + ".")})
    near = difflib.get_close_matches(leaf, list(leaves), 1, 0.4)
    if near:
        hint = f"The nearest legal key is {leaves[near[0]]!r}"
    else:
        own = [k for k in keys if k.startswith(section + ".")]
        hint = f"Legal keys are {', '.join(own)}" if own else f"There are {', '.join(sections)}"
    return ConfigError(f"{key!r} ({where}) is not a key of a deployment. {hint}.")


def from_validation(error: ValidationError, where: str) -> ConfigError:
    """The first thing that is wrong, in one paragraph, and how many more there are."""
    errors = error.errors(include_url=False, include_context=True)
    first = errors[0]
    more = f" ({len(errors) - 1} more like this.)" if len(errors) > 1 else ""
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return ConfigError(f"{unknown_key(key, where)}{more}")
    value: Any = first.get("input")
    rule = first["msg"]
    rule = (rule[0].lower() + rule[1:]).replace("a valid tuple", "a list")  # as TOML calls it
    return ConfigError(f"{key} = {value!r} ({where}) is not allowed: {rule}.{more}")
