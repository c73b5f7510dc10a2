"""`python -m oracle.record_pools FOLDER`: what SGLang prices and how it splits memory for V4's pools.

Theirs: `DSV4PoolConfigurator` of the SGLang that is imported, with its prices, fixed bytes and sizes.
Emulated: its view of the server's arguments, a namespace. V4.1 as on sm_100 (MXFP8 windows, FP4 entries).
"""

from __future__ import annotations

import importlib
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from oracle import log

SCHEMA = 1
GRID = {
    "model": ["v4-flash", "v4-pro", "v4.1-flash"],
    "speculation": [("off", 0), ("mtp", 1), ("mtp", 3), ("dspark", 4)],
    "memory_gib": [80, 160],
    "max_running": [32, 256],
    "attention_dp": [1, 8],
    "swa_full_ratio": [0.02, 0.1, None],
}
CHUNK_TOKENS = 8192
PAGE_TOKENS = 256


def main(folder: str) -> int:
    importlib.import_module("oracle.absent")
    sglang = importlib.import_module("sglang")
    module = importlib.import_module("sglang.srt.model_executor.pool_configurator")
    memory = importlib.import_module("sglang.srt.mem_cache.deepseek_v4_memory_pool")
    spec_of = importlib.import_module("v4sim.model").spec
    rows: list[dict[str, Any]] = []
    for values in product(*GRID.values()):
        row: dict[str, Any] = dict(zip(GRID, values, strict=True))
        (kind, drafts), spec = row.pop("speculation"), spec_of(row["model"])
        by_cap = row["swa_full_ratio"] is None  # V4.1's default; V4 is given 0.1
        if (kind != "off" and kind not in spec.speculators) or (by_cap and spec.compressor.kind == "gated"):
            continue
        row |= {"speculation": kind, "draft_tokens": drafts}
        _answer(row, spec, (module, memory))
        found = module.DSV4PoolConfigurator(_configurator(row, spec))
        per_rank = max(1, row["max_running"] // row["attention_dp"])
        sizes = found.calculate_pool_sizes(row["memory_gib"] << 30, PAGE_TOKENS)
        rows.append(
            row
            | {
                "bytes_per_full_token": found.bytes_per_full_token,
                "bytes_per_swa_token": found.bytes_per_swa_token,
                "state_bytes": found._get_c128_state_fixed_bytes(per_rank)
                + found._get_c2_state_fixed_bytes(per_rank),
                "kv_tokens": sizes.full_max_total_num_tokens,
                "swa_tokens": sizes.swa_max_total_num_tokens,
            }
        )
    data = {
        "schema_version": SCHEMA,
        "engine": "sglang",
        "version": sglang.__version__,
        "chunk_tokens": CHUNK_TOKENS,
        "page_tokens": PAGE_TOKENS,
        "rows": rows,
    }
    path = Path(folder) / "sglang_pools.json.gz"
    log.save(path, data)
    size = path.stat().st_size / 1e3
    print(f"sglang {sglang.__version__}, pools of V4: {len(rows)} deployments, {size:.0f} kB")
    return 0


def _answer(row: dict[str, Any], spec: Any, modules: tuple[Any, ...]) -> None:
    """The arguments of a server, where the modules look them up."""
    algorithm = {"off": None, "mtp": "EAGLE", "dspark": "DSPARK"}[row["speculation"]]
    drafts = row["draft_tokens"] + 1 if algorithm else None
    latent = spec.compressor.kind == "latent"
    given = {
        "get_exec": SimpleNamespace(
            kernel=SimpleNamespace(dsv4_attn_backend="flashmla", enable_deepseek_v4_fp4_indexer=False),
            features=SimpleNamespace(enable_encoder_swa_bounded_replay=False),
        ),
        "get_spec": SimpleNamespace(
            speculative_algorithm=algorithm,
            speculative_num_steps=row["draft_tokens"] or None,
            speculative_eagle_topk=1 if algorithm else None,
            speculative_num_draft_tokens=drafts,
        ),
        "get_schedule": SimpleNamespace(
            max_running_requests=row["max_running"],
            chunked_prefill_size=CHUNK_TOKENS,
            disable_overlap_schedule=False,
            swa_prefix_tails=None,
            swa_full_tokens_ratio=row["swa_full_ratio"],
            _swa_full_tokens_ratio_explicitly_set=row["swa_full_ratio"] is not None,
        ),
        "get_memory": SimpleNamespace(enable_hisparse=False, disable_radix_cache=False),
        "get_disagg": SimpleNamespace(disaggregation_mode="null", disaggregation_decode_extra_slots=0),
    }
    for module in modules:
        for name, value in given.items():
            if hasattr(module, name):
                setattr(module, name, lambda value=value: value)
        if hasattr(module, "max_speculative_num_draft_tokens"):
            module.max_speculative_num_draft_tokens = lambda: drafts
        if hasattr(module, "get_alloc_len_per_decode"):
            module.get_alloc_len_per_decode = lambda: drafts or 1
        if hasattr(module, "select_dsv4_kv_layout"):
            chosen = module.KVLayout.V41 if latent else module.KVLayout.V4
            module.select_dsv4_kv_layout = lambda chosen=chosen: (chosen, None)


def _configurator(row: dict[str, Any], spec: Any) -> Any:
    """The model and the server as the configurator sees them."""
    a, kind = spec.attention, row["speculation"]
    return SimpleNamespace(
        kv_cache_dtype_str="fp8_e4m3",
        model_config=SimpleNamespace(
            qk_nope_head_dim=a.head_dim - a.rope_dim,
            qk_rope_head_dim=a.rope_dim,
            index_head_dim=spec.index.dim,
            context_len=spec.max_context_tokens,
            compress_ratios=[layer.ratio for layer in spec.layers],
            window_size=spec.sliding_window,
            hf_config=SimpleNamespace(
                kv_source_layer_ids=[
                    n for n, layer in enumerate(spec.layers) if layer.ratio and layer.owns_kv
                ]
            ),
        ),
        layer_info=SimpleNamespace(start_layer=0, end_layer=spec.num_layers),
        pp_size=1,
        sliding_window_size=spec.sliding_window,
        page_size=PAGE_TOKENS,
        attn_dp_size=row["attention_dp"],
        spec_algorithm=SimpleNamespace(
            is_dspark=lambda: kind == "dspark", is_eagle=lambda: kind == "mtp", is_none=lambda: kind == "off"
        ),
        spec_aux_config=SimpleNamespace(dspark_num_stages=3, dflash_draft_num_layers=None),
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
