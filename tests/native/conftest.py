"""Runs in which a made-up engine decides."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from v4sim import config, simulate
from v4sim.capacity import RankPools
from v4sim.config.installed import NATIVE
from v4sim.cost.base import ConstantCost
from v4sim.engine.native import sglang_engine, vllm_engine
from v4sim.laws import check_laws
from v4sim.results import RunResult
from v4sim.workload import WorkloadOptions
from v4traces import CallRow, TraceMetadata, TraceWriter, read_table

PRESETS = {"vllm": "8xB200 V4-Flash DP8 vllm", "sglang": "4xB200 V4-Flash DPA4+EP4 sglang"}
sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata of the engines without their packages."""
    real = importlib.metadata.version
    tried = {native.kind: native.tried for native in NATIVE.values()}
    monkeypatch.setattr(importlib.metadata, "version", lambda name: tried.get(name) or real(name))


@pytest.fixture
def driven(installed: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., RunResult]:
    """A run of `rows` in which `new_engine` makes each rank's engine; every law is checked."""

    def go(
        rows: Sequence[CallRow],
        new_engine: Callable[[], Any],
        sets: Sequence[str] = (),
        ranks: int = 1,
        kind: str = "vllm",
    ) -> RunResult:
        monkeypatch.setattr(vllm_engine, "engines", lambda options, spec, prefixes: new_engine)
        monkeypatch.setattr(sglang_engine, "engines", lambda options, prefixes: new_engine)
        path = tmp_path / "trace.parquet"
        with TraceWriter(path, TraceMetadata("hand", "synthetic"), force=True) as writer:
            writer.append(rows)
        table = read_table(path)
        deployment = config.load(
            PRESETS[kind],
            [
                f"engine.scheduler={kind}-native",
                f"parallel.attention_dp={ranks}",
                f"parallel.ep={ranks}",
                f"hardware.num_gpus={ranks}",
                "engine.cpu_request_us=0",
                "engine.cpu_cached_token_us=0",
                *sets,
            ],
        )
        result = simulate.run(
            table,
            deployment,
            ConstantCost(0.01, 0.0, 0.0),
            WorkloadOptions(arrivals="trace"),
            pools=RankPools(1 << 20, 1 << 20, 64, 0, (), 1 << 20),
        )
        broken = check_laws(result, table, config.resolve(deployment))
        assert broken == []
        return result

    return go
