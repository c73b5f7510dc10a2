"""Published start-up logs: capacity is derived from shapes and compared, never fitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from v4sim.capacity import pools
from v4sim.config import from_dict
from v4sim.model import spec


@pytest.mark.shared_data
def test_token_capacity_of_the_8xb200_campaign(shared_data: Path) -> None:
    """vLLM 0.25, V4-Flash, TP8, utilisation 0.95: 21,419,891 tokens, 20.43 requests of 1M."""
    targets = json.loads((shared_data.parent / "validation" / "targets-dev.json").read_text())["targets"]
    target = next(t for t in targets if t["id"] == "V14-cap-TP8")
    published = {metric["name"]: metric["value"] for metric in target["metrics"]}
    deployment = from_dict(
        {
            "name": target["id"],
            "model": {
                "name": target["model"],
                "weights": target["weights"],
                "index_dtype": target["index_dtype"],
            },
            "hardware": {"gpu": target["gpu"], "num_gpus": target["num_gpus"]},
            "parallel": {"attention_tp": 8, "attention_dp": 1, "ep": target["topology"]["ep"]},
            "engine": {
                "kind": "vllm",
                "version": "0.25",
                "mem_fraction": target["mem_fraction"],
                "max_batched_tokens": target["max_batched_tokens"],
                "max_num_seqs": target["max_running"],
            },
        }
    )

    found = pools(deployment, spec("v4-flash")).reported_tokens

    assert found == pytest.approx(published["kv_tokens_per_replica"], rel=0.03)
    assert found / 2**20 == pytest.approx(published["max_concurrency_1m"], rel=0.03)
