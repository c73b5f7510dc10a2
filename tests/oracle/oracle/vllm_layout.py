"""vLLM's own plan of its KV cache for DeepSeek-V4: specs of its layers, groups, bytes of a block, blocks.

Theirs: the cache specs (the layers' own methods), grouping, packing, number of blocks and the logged size.
Emulated: the layers themselves, which are left without weights, and the configuration, which is a
namespace with vLLM's own properties on it. Works with 0.25 to 0.33, whichever is imported.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import count
from types import SimpleNamespace
from typing import Any

import torch
import vllm
import vllm.models.deepseek_v4.attention as v4
import vllm.models.deepseek_v4.compressor as v4_compressor
from vllm.config import VllmConfig
from vllm.v1.attention.backends.mla import sparse_swa
from vllm.v1.core import kv_cache_utils

from v4sim.model import ModelSpec

try:
    from vllm.v1.core import kv_cache_planning as planning
except ImportError:  # until 0.31
    planning = kv_cache_utils
try:
    import vllm.models.deepseek_v41.attention as v41
    import vllm.models.deepseek_v41.compressor as v41_compressor
except ImportError:  # until 0.29
    v41 = v41_compressor = None

VERSION: str = vllm.__version__
_LAYOUT = "BLHNC"  # what V4's indexer backend asks for


class Settings(SimpleNamespace):
    """Options of a deployment as the planning functions read them."""

    @property
    def max_concurrent_batches(self) -> int:
        found: int = VllmConfig.max_concurrent_batches.fget(self)
        return found

    @property
    def max_in_flight_tokens(self) -> int:
        found: int = VllmConfig.max_in_flight_tokens.fget(self)
        return found


def settings(
    *, max_model_len: int, max_batched_tokens: int, async_scheduling: bool, draft_tokens: int, tp: int
) -> Any:
    cache = SimpleNamespace(
        block_size=256,
        cache_dtype="fp8_ds_mla",
        num_gpu_blocks_override=None,
        prefix_cache_retention_interval=0,
        enable_prefix_caching=True,
        swa_bounded_replay=True,
        get_resolved_kv_cache_layout=lambda: _layout(),
    )
    speculative = SimpleNamespace(
        method="mtp",
        num_speculative_tokens=draft_tokens,
        use_eagle=lambda: True,
        use_eagle_block_drop=lambda: False,
        use_multi_module_mtp=lambda: False,
    )
    return Settings(
        cache_config=cache,
        model_config=SimpleNamespace(
            max_model_len=max_model_len,
            original_max_model_len=max_model_len,
            supports_kv_cache_grouping=False,
            hf_config=SimpleNamespace(model_type="deepseek_v4", num_nextn_predict_layers=1),
        ),
        scheduler_config=SimpleNamespace(
            max_num_batched_tokens=max_batched_tokens,
            async_scheduling=async_scheduling,
            disable_hybrid_kv_cache_manager=False,
        ),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=tp,
            pipeline_parallel_size=1,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
        ),
        attention_config=SimpleNamespace(hisparse_config=None, indexer_sparse_logits=False),
        compilation_config=SimpleNamespace(static_forward_context={}),
        speculative_config=speculative if draft_tokens else None,
        kv_transfer_config=None,
        device_config=SimpleNamespace(device_type="cuda"),
        num_prefill_lookahead_tokens=1 if draft_tokens else 0,
        num_speculative_tokens=draft_tokens,
        use_v2_model_runner=True,
    )


def _layout() -> Any:
    from vllm.v1.kv_cache_layout import KVCacheLayout

    return KVCacheLayout[_LAYOUT]


def layer_specs(config: Any, spec: ModelSpec, index_dtype: str, draft_layers: int) -> dict[str, Any]:
    """What each layer of the model says of its cache, in the order in which the model makes them."""
    for module in (sparse_swa, v4, v4_compressor, v41, v41_compressor):
        if module is not None:
            module.get_current_vllm_config = lambda: config
    make = _latent if spec.compressor.kind == "latent" else _gated
    found: dict[str, Any] = {}
    name = (f"layer.{number}" for number in count())
    for number in range(spec.num_layers + draft_layers):
        layer = spec.layers[number] if number < spec.num_layers else None
        for part in make(config, spec, index_dtype, layer):
            cache_spec = part(config)
            if cache_spec is not None:
                found[next(name)] = cache_spec
    return found


def _bare(kind: type, **attributes: Any) -> Any:
    """A layer without weights: its class's methods on the attributes that they read."""
    made = object.__new__(kind)
    made.__dict__.update(attributes)
    return made


def _gated(config: Any, spec: ModelSpec, index_dtype: str, layer: Any) -> list[Any]:
    ratio = layer.ratio if layer is not None else 0
    cache = config.cache_config
    parts: list[Any] = []

    def state(head_dim: int) -> Any:
        # As DeepseekCompressor makes it: keys and scores, twice where groups overlap.
        width = 2 * (2 if ratio == 4 else 1) * head_dim
        made = _bare(
            v4_compressor.CompressorStateCache,
            state_dim=width,
            dtype=torch.float32,
            sliding_window=ratio * (2 if ratio == 4 else 1),
            block_size=4 if ratio == 4 else 8,
        )
        return made.get_kv_cache_spec

    if layer is not None and layer.kind == "selected":
        wide = index_dtype == "fp8" or not hasattr(v4, "MXFP4_BLOCK_SIZE")
        keys = _bare(
            v4.DeepseekV4IndexerCache,
            head_dim=132 if wide else 68,
            dtype=torch.uint8,
            cache_config=cache,
            compress_ratio=ratio,
        )
        parts += [keys.get_kv_cache_spec, state(spec.index.dim)]
    windows = _bare(
        sparse_swa.DeepseekV4SWACache,
        head_dim=spec.attention.head_dim,
        window_size=spec.sliding_window,
        dtype=torch.uint8,
        cache_config=cache,
        block_size=64,
        packed_bytes_per_token=584,
        packed_page_alignment=576,
        packed_block_stride_alignment=None,
        bounded_replay=False,
    )
    parts.append(windows.get_kv_cache_spec)
    main = SimpleNamespace(
        compress_ratio=max(ratio, 1),
        kv_cache_dtype=cache.cache_dtype,
        kv_cache_torch_dtype=torch.uint8,
        head_dim=spec.attention.head_dim,
    )
    parts.append(lambda c: v4.DeepseekV4Attention.get_kv_cache_spec(main, c))
    if ratio:
        parts.append(state(spec.attention.head_dim))
    return parts


def _latent(config: Any, spec: ModelSpec, index_dtype: str, layer: Any) -> list[Any]:
    """V4.1 on sm_100 as its default backend stores it: NVFP4 entries, MXFP8 windows, bounded replay."""
    v41._use_v41_mxfp8_kv_record = lambda: True
    config.cache_config.cache_dtype = "nvfp4_ds_mla"
    owns = layer is not None and layer.owns_kv
    main = SimpleNamespace(
        is_kv_source=owns,
        compress_ratio=layer.ratio if owns else 0,
        kv_cache_dtype="nvfp4_ds_mla",
        kv_cache_torch_dtype=torch.uint8,
        head_dim=spec.attention.head_dim,
        kv_page_alignment=512,
        compressed_bytes_per_token=288,
    )
    windows = _bare(
        sparse_swa.DeepseekV4SWACache,
        head_dim=spec.attention.head_dim,
        window_size=spec.sliding_window,
        dtype=torch.uint8,
        cache_config=config.cache_config,
        block_size=32,
        packed_bytes_per_token=528,
        packed_page_alignment=512,
        packed_block_stride_alignment=3168,
        bounded_replay=True,
    )
    parts: list[Any] = [
        lambda c: v41.DeepseekV4Attention.get_kv_cache_spec(main, c),
        windows.get_kv_cache_spec,
    ]
    if owns:
        keys = _bare(
            v41.DeepseekV4IndexerCache,
            head_dim=v41._indexer_k_cache_head_dim(spec.index.dim, index_dtype == "fp4"),
            dtype=torch.uint8,
            cache_config=config.cache_config,
            compress_ratio=layer.ratio,
            sparse_logits=False,
            rocm_mxfp4=False,
        )
        parts.append(keys.get_kv_cache_spec)
        if layer.ratio > 1:
            rows = config.num_speculative_tokens + 2
            ring = _bare(
                v41_compressor.CompressorStateCache,
                state_dim=2 * spec.attention.head_dim,
                dtype=torch.float32,
                block_size=max(8, 1 << (rows - 1).bit_length()),
            )
            parts.append(ring.get_kv_cache_spec)
    return parts


def plan(config: Any, specs: dict[str, Any], available_bytes: int) -> dict[str, Any]:
    """vLLM's plan for one worker with so much memory for its cache."""
    if hasattr(planning, "get_global_kv_cache_groups"):
        groups = planning.get_global_kv_cache_groups(config, [specs])
        (whole,) = planning.get_kv_cache_configs(config, [specs], [available_bytes], groups)
        view = kv_cache_utils.generate_scheduler_kv_cache_config([whole])
    else:
        (whole,) = planning.get_kv_cache_configs(config, [specs], [available_bytes])
        view = whole  # it logs before it reduces a group to one of its layers
    tokens, concurrency = kv_cache_utils.get_kv_cache_capacity(config, view)
    return {
        "groups": [_group(group) for group in whole.kv_cache_groups],
        "num_blocks": whole.num_blocks,
        "block_bytes": whole.kv_cache_tensors[0].size // whole.num_blocks,
        "request_blocks": round(whole.num_blocks / concurrency),
        "reported_tokens": tokens,
    }


def _group(group: Any) -> list[Any]:
    specs = list(group.kv_cache_spec.kv_cache_specs.values())
    first = specs[0]
    named = {field.name for field in fields(first)}
    kind = type(first).__name__
    window = first.sliding_window if "sliding_window" in named else None
    return [kind, window, first.block_size, len(specs), sum(one.page_size_bytes for one in specs)]
