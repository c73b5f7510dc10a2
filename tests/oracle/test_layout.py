"""Our layout of vLLM's cache has the groups, bytes of a block and blocks that vLLM's planning has, recorded.

Models, index formats, draft heads, budgets, lengths, with and without async scheduling, TP 1 and 8; before
and after 0.27, when blocks began to be as wide as their widest group.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from v4sim.config.checks import VERSIONS
from v4sim.model import spec
from v4sim.model.layout import VllmLayout
from v4sim.model.layout.vllm_groups import HISTORY, RING

RECORDED = Path(__file__).resolve().parent / "recorded" / "vllm_layout.json.gz"
DATA: dict[str, Any] = json.loads(gzip.decompress(RECORDED.read_bytes()))


def ours(version: str, row: dict[str, Any]) -> VllmLayout:
    model = spec(row["model"])
    layers = 0 if row["speculation"] == "off" else model.speculators[row["speculation"]].layers
    return VllmLayout(model, row["index_dtype"], 256, row["draft_tokens"], layers, version)


@pytest.mark.parametrize("version", DATA["versions"])
def test_every_figure_is_vllms(version: str) -> None:
    different = []
    for row in DATA["versions"][version]:
        layout = ours(version, row)
        step = row["max_batched_tokens"] * layout.steps_in_flight(row["async_scheduling"])
        need = layout.reported_blocks(row["max_model_len"], step)
        blocks = (DATA["memory_gib"] << 30) // layout.block_bytes
        found = {
            "block_bytes": layout.block_bytes,
            "request_blocks": need,
            "num_blocks": blocks,
            "reported_tokens": int(blocks / need * row["max_model_len"]),
        }
        if found != {key: row[key] for key in found}:
            different.append((row, found))
    assert different == []


@pytest.mark.parametrize("version", DATA["versions"])
def test_groups_are_vllms(version: str) -> None:
    windows = {HISTORY: None, RING: None}
    for row in DATA["versions"][version]:
        theirs = Counter((window, tokens) for _, window, tokens, _, _ in row["groups"])
        found: Counter[tuple[int | None, int]] = Counter()
        for packed in ours(version, row).packing.buckets:
            bucket = packed.bucket
            found[windows.get(bucket.window, bucket.window), bucket.block_tokens] += packed.groups
        assert found == theirs, row
        # No block is smaller than a group of it.
        assert all(size <= row["block_bytes"] for *_, size in row["groups"])


def test_a_decoding_call_holds_as_many_blocks_of_windows_as_in_vllm() -> None:
    """To one block of thirty: a mean, and how many drafts of the script are accepted."""
    layout = VllmLayout(spec("v4-flash"), "fp4")
    for row in DATA["held"]:
        width, drafts = 1 + row["draft_tokens"], row["draft_tokens"]
        under_way = layout.steps_in_flight(row["async_scheduling"]) * width + drafts
        found = layout.held_window_blocks(under_way)
        assert row["mean_blocks"] - 0.01 <= found <= row["most_blocks"], row
        assert found <= row["mean_blocks"] + 1.5, row


def test_each_version_whose_rules_can_be_chosen_is_recorded() -> None:
    recorded = {version.rsplit(".", 1)[0] for version in DATA["versions"]}
    assert recorded >= set(VERSIONS["vllm"])


def test_tensor_parallel_ranks_have_the_same_layout() -> None:
    """One KV head, so every rank of a TP group holds the whole cache."""
    for rows in DATA["versions"].values():
        seen: dict[str, list[Any]] = {}
        for row in rows:
            key = {name: value for name, value in row.items() if name not in ("tp",)}
            seen.setdefault(json.dumps(key, sort_keys=True), []).append(row["tp"])
        assert all(sorted(found) == [1, 8] for found in seen.values())
