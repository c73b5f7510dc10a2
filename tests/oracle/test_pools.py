"""Our prices and pools of SGLang 0.5.23 are those of its own pool configurator, recorded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from v4sim.config.checks import VERSIONS
from v4sim.model import spec
from v4sim.model.layout import SglangLayout

RECORDED = Path(__file__).resolve().parent / "recorded" / "sglang_pools.json.gz"
DATA: dict[str, Any] = json.loads(gzip.decompress(RECORDED.read_bytes()))
PAGE = DATA["page_tokens"]


def ours(row: dict[str, Any]) -> dict[str, float]:
    model = spec(row["model"])
    layout = SglangLayout(model, model.index_dtypes[0], PAGE, row["draft_tokens"], DATA["version"])
    layers = 0 if row["speculation"] == "off" else model.speculators[row["speculation"]].layers
    slots = max(1, row["max_running"] // row["attention_dp"])
    state, ratio, cap = layout.state_bytes(slots), row["swa_full_ratio"] or 0.0, 0
    if row["swa_full_ratio"] is None:
        cap = layout.cap_swa_tokens(slots, DATA["chunk_tokens"], late_results=True)
    price, window = layout.bytes_per_full_token(ratio, layers), layout.bytes_per_swa_token(layers)
    tokens = int((row["memory_gib"] * 2**30 - state - cap * window) / price) // PAGE * PAGE
    return {
        "bytes_per_full_token": price,
        "bytes_per_swa_token": window,
        "state_bytes": state,
        "kv_tokens": tokens,
        "swa_tokens": cap or int(tokens * ratio) // PAGE * PAGE,
    }


@pytest.mark.parametrize("model", ["v4-flash", "v4-pro", "v4.1-flash"])
def test_every_price_and_pool_is_sglangs(model: str) -> None:
    """To the token for V4; for V4.1 to the few pages at a pool's end, which it reserves and ours does not."""
    rows = [row for row in DATA["rows"] if row["model"] == model]
    assert len(rows) > 30
    for row in rows:
        found = ours(row)
        for name in ("bytes_per_full_token", "bytes_per_swa_token"):
            assert found[name] == pytest.approx(row[name], rel=1e-12), (name, row)
        assert found["state_bytes"] == row["state_bytes"], row
        more = found["kv_tokens"] - row["kv_tokens"]
        assert more == 0 if model != "v4.1-flash" else 0 <= more <= 4 * PAGE, (more, row)
        if more == 0:
            assert found["swa_tokens"] == row["swa_tokens"], row


def test_the_recorded_version_can_be_chosen() -> None:
    assert DATA["version"] in VERSIONS["sglang"]
