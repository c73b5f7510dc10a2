"""`python -m oracle.record_layout FOLDER`: what vLLM makes of V4's layers: groups, bytes of a block, blocks.

Over a grid of deployments (`GRID`), for the vLLM that is imported; rows of other versions stay as they
are. Of the version that is installed also how many blocks beyond its history one call holds while it
decodes. An older vLLM needs no installation: `pip download --no-deps vllm==0.25.0`, unzip it, and put the
folder first in PYTHONPATH, before `.:../../sim:../../traces`.
"""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from oracle import log

SCHEMA = 1
MEMORY_GIB = 100
TRIED = "0.33."  # what `vllm_v4_driver` is written for
GRID = {
    "model": ["v4-flash", "v4-pro", "v4.1-flash"],
    "index_dtype": ["fp8", "fp4"],
    "speculation": [("off", 0), ("mtp", 1), ("mtp", 3), ("dspark", 5)],
    "max_batched_tokens": [2048, 8192],
    "max_model_len": [8192, 1 << 20],
    "async_scheduling": [False, True],
    "tp": [1, 8],
}


def held() -> list[dict[str, Any]]:
    """Blocks of the window groups that vLLM's cache manager has in use while one long call decodes."""
    driver = importlib.import_module("oracle.vllm_v4_driver")
    driver.V4Loop.model()
    script = importlib.import_module("oracle.sessions").scripts(1)[0]
    rows = []
    for late, drafts in product([False, True], [0, 1, 3]):
        call = replace(script.calls[0], prompt=20_000, output=2_000, limit=2_000)
        options = script.options | {"async_scheduling": late, "draft_tokens": drafts}
        loop = driver.V4Loop(replace(script, options=options, calls=(call,)))
        pool = loop.scheduler.kv_cache_manager.block_pool
        everything, found = pool.get_num_free_blocks(), []
        schedule = loop.scheduler.schedule

        def counted(*arguments: Any) -> Any:
            out = schedule(*arguments)  # noqa: B023 (called within this turn)
            if 0 < out.total_num_scheduled_tokens <= 1 + drafts:  # noqa: B023
                history = -(-loop.requests[0].num_computed_tokens // script.options["page_tokens"])  # noqa: B023
                found.append(everything - pool.get_num_free_blocks() - history)  # noqa: B023
            return out

        loop.scheduler.schedule = counted
        loop.run()
        steady = found[20:-5]
        rows.append(
            {
                "async_scheduling": late,
                "draft_tokens": drafts,
                "mean_blocks": round(sum(steady) / len(steady), 2),
                "most_blocks": max(steady),
            }
        )
    return rows


def main(folder: str) -> int:
    importlib.import_module("oracle.absent")  # before anything of an engine
    layout = importlib.import_module("oracle.vllm_layout")
    spec_of = importlib.import_module("v4sim.model").spec
    rows: list[dict[str, Any]] = []
    for values in product(*GRID.values()):
        row: dict[str, Any] = dict(zip(GRID, values, strict=True))
        spec, (kind, drafts) = spec_of(row["model"]), row.pop("speculation")
        is_latent = spec.compressor.kind == "latent"
        unknown = (kind != "off" and kind not in spec.speculators) or row[
            "index_dtype"
        ] not in spec.index_bytes
        if unknown or (is_latent and layout.v41 is None):
            continue
        row |= {"speculation": kind, "draft_tokens": drafts}
        config = layout.settings(
            max_model_len=row["max_model_len"],
            max_batched_tokens=row["max_batched_tokens"],
            async_scheduling=row["async_scheduling"],
            draft_tokens=drafts,
            tp=row["tp"],
        )
        layers = spec.speculators[kind].layers if kind != "off" else 0
        specs = layout.layer_specs(config, spec, row["index_dtype"], layers)
        rows.append(row | layout.plan(config, specs, MEMORY_GIB << 30))
    path = Path(folder) / "vllm_layout.json.gz"
    before = json.loads(gzip.decompress(path.read_bytes())) if path.exists() else {}
    versions: dict[str, Any] = before.get("versions", {}) | {layout.VERSION: rows}
    data = {
        "schema_version": SCHEMA,
        "engine": "vllm",
        "memory_gib": MEMORY_GIB,
        "versions": dict(sorted(versions.items())),
        "held": held() if layout.VERSION.startswith(TRIED) else before.get("held"),
    }
    log.save(path, data)
    print(
        f"vllm {layout.VERSION}, layout of the cache: {len(rows)} deployments; "
        f"{path.name} has {', '.join(data['versions'])}, {path.stat().st_size / 1e3:.0f} kB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
