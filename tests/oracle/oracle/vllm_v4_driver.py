"""vLLM's scheduler over the cache groups of DeepSeek-V4: what `vllm_driver` does, with V4's layers.

The layers' cache specs are those of vLLM's model code (`v4sim.engine.native.groups` restates them); vLLM
packs them into groups, blocks and hashes. Tokens are real ids and hashes are vLLM's own, so this also
checks what the simulator's adapter makes of a trace's prefix structure.
"""

from __future__ import annotations

from typing import Any

from vllm.config import VllmConfig
from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE
from vllm.v1 import kv_cache_interface as interface
from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups
from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config
from vllm.v1.kv_cache_interface import KVCacheConfig

from oracle.vllm_driver import VERSION, Loop
from v4sim.engine.native.groups import layer_specs
from v4sim.model import spec as model_spec

__all__ = ["VERSION", "V4Loop"]
_LAYOUT = "BLHNC"  # what V4's indexer backend accepts


class V4Loop(Loop):
    """One scheduler under one script; `options` also name `index_dtype` and `retention_interval`."""

    groups: list[dict[str, Any]]

    def _groups(self, config: VllmConfig, blocks: int) -> KVCacheConfig:
        config.cache_config.kv_cache_layout = _LAYOUT
        config.scheduler_config.disable_hybrid_kv_cache_manager = False
        options = self.options
        layers = layer_specs(
            interface,
            STR_DTYPE_TO_TORCH_DTYPE,
            model_spec("v4-flash"),
            options.get("index_dtype", "fp4"),
            options["page_tokens"],
            1 if self.drafts else 0,
        )
        groups = get_global_kv_cache_groups(config, [layers])
        self.groups = [
            {
                "layers": len(group.layer_names),
                "kind": type(getattr(group.kv_cache_spec, "first_spec", group.kv_cache_spec)).__name__,
                "block_tokens": group.kv_cache_spec.block_size,
                "block_bytes": group.kv_cache_spec.page_size_bytes,
            }
            for group in groups
        ]
        return generate_scheduler_kv_cache_config(
            [KVCacheConfig(blocks, [], groups, options.get("retention_interval", 0))]
        )
