"""V4's layers as cache specs of vLLM: what its model code declares, without building the model.

Per layer: the sliding window; where entries are compressed, the main entries and the compressor's
incomplete groups; where they are selected, the index keys and theirs. A draft head has windows only.
vLLM itself then packs the layers into groups and derives the hit unit (256) and the hashed unit (4).

Source: vLLM 0.33.0, `models/deepseek_v4/{attention,compressor}.py`, `v1/attention/backends/mla/sparse_swa.py`
(block sizes, 576-byte pages, fp32 state of twice the overlap). Left out: V4.1, whose model code differs
(refused in `config.checks`).
"""

from __future__ import annotations

from typing import Any

from v4sim.model import ModelSpec
from v4sim.model.layout.base import StateRing, state_rings
from v4sim.model.layout.sglang import PAD_BYTES
from v4sim.model.layout.vllm import OVERLAP_STATE_BLOCK, STATE_BLOCK, SWA_BLOCK_TOKENS

CACHE_DTYPE = "fp8_ds_mla"


def layer_specs(
    interface: Any, dtypes: Any, spec: ModelSpec, index_dtype: str, page_tokens: int, draft_layers: int
) -> dict[str, Any]:
    """Cache specs by layer name, from vLLM's module of spec classes and its table of torch types."""
    head, entry = spec.attention.head_dim, spec.entries.main_bytes
    common = {"num_kv_heads": 1, "max_tp_shards": 1, "alignment": PAD_BYTES}
    packed = {"cache_dtype_str": CACHE_DTYPE, "state_content_bytes": entry, "model_version": "deepseek_v4"}

    def history(ratio: int, width: int, **more: Any) -> Any:
        return interface.MLAAttentionSpec(
            block_size=page_tokens,
            head_size=width,
            dtype=dtypes[CACHE_DTYPE],
            tokens_per_state=ratio,
            **common,
            **more,
        )

    def window(block: int, tokens: int, width: int, dtype: str, **more: Any) -> Any:
        return interface.SlidingWindowMLASpec(
            block_size=block,
            head_size=width,
            dtype=dtypes[dtype],
            sliding_window=tokens,
            **common,
            **more,
        )

    def state(ring: StateRing) -> Any:
        overlap = ring.ratio in spec.compressor.overlap_ratios
        block = OVERLAP_STATE_BLOCK if overlap else STATE_BLOCK
        return window(block, ring.ratio * (2 if overlap else 1), ring.values, "float32")

    rings = {ring.name: ring for ring in state_rings(spec)}
    specs: dict[str, Any] = {}
    for number, layer in enumerate(spec.layers):
        name = f"layers.{number}"
        specs[f"{name}.window"] = window(SWA_BLOCK_TOKENS, spec.sliding_window, head, CACHE_DTYPE, **packed)
        if not layer.ratio:
            continue
        specs[f"{name}.main"] = history(layer.ratio, head, **packed)
        specs[f"{name}.state"] = state(rings[f"c{layer.ratio}_state"])
        if layer.kind == "selected":
            specs[f"{name}.index"] = history(layer.ratio, spec.index_bytes[index_dtype])
            specs[f"{name}.index_state"] = state(rings[f"c{layer.ratio}_index_state"])
    for number in range(draft_layers):
        specs[f"draft.{number}.window"] = window(
            SWA_BLOCK_TOKENS, spec.sliding_window, head, CACHE_DTYPE, is_draft=True, **packed
        )
    return specs
