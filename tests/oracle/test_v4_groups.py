"""Hits over V4's real cache groups in vLLM, recorded, are the hits of our cache. Nothing of vLLM is needed.

Compressed history, windows, compressor state: groups in blocks of 256, 64, 4 and 8 tokens, and a hit needs
all. The scripts continue sessions, fork and roll them back, on and around page boundaries.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress((HERE / "recorded" / "vllm_v4.json.gz").read_bytes()))
    return found


def test_every_hit_is_vllms(recorded: dict[str, Any]) -> None:
    from oracle.ours import World
    from oracle.script import Script

    assert len(recorded["runs"]) >= 100
    assert sum(hit > 0 for run in recorded["runs"] for _, hit in run["hits"]) > 300
    different = {}
    for run in recorded["runs"]:
        script = Script.load(run["script"])
        ours = [pair for entry in World(script, stepwise=False).run() for pair in entry[3]]
        if ours != run["hits"]:
            different[script.name] = [
                pair for pair in zip(ours, run["hits"], strict=False) if pair[0] != pair[1]
            ]
    assert different == {}, "scripts with (our, their) hits that differ"


def test_the_last_token_is_never_a_hit(recorded: dict[str, Any]) -> None:
    """A prompt of n pages sent again hits n - 1 of them: at most its length less one, in whole pages."""
    again = [
        (call["prompt"], dict(run["hits"])[number])
        for run in recorded["runs"]
        for number, call in enumerate(run["script"]["calls"])
        if call.get("parent") is not None
        and call["prompt"] == call.get("shared")
        and call["prompt"] % 256 == 0
    ]
    assert again
    assert all(hit <= prompt - 256 for prompt, hit in again)


def test_our_block_is_vllms_block(recorded: dict[str, Any]) -> None:
    from v4sim.model import spec
    from v4sim.model.layout import VllmLayout

    for index_dtype, groups in recorded["groups"].items():
        theirs = max(group["block_bytes"] for group in groups)
        assert VllmLayout(spec(recorded["model"]), index_dtype).block_bytes == theirs
        assert sorted({group["block_tokens"] for group in groups}) == [4, 8, 64, 256]
