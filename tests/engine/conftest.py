"""Small worlds for engine tests: traces of a few calls, pools of a few pages, costs to compute by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from v4sim import config, simulate
from v4sim.capacity import RankPools
from v4sim.cost.base import ConstantCost
from v4sim.results import RunResult
from v4sim.workload import WorkloadOptions
from v4traces import CallRow, TraceMetadata, TraceTable, TraceWriter, read_table

MakeTrace = Callable[[Sequence[CallRow]], TraceTable]
Simulate = Callable[..., RunResult]


def small_pools(kv_tokens: int, swa_tokens: int | None = None, slots: int = 64) -> RankPools:
    """Pools of one rank without a GPU behind them; a generous window pool unless given."""
    swa = swa_tokens if swa_tokens is not None else max(kv_tokens, 64 * 1024)
    return RankPools(kv_tokens, swa, slots, 0, (), kv_tokens)


@pytest.fixture(scope="session")
def make_trace(tmp_path_factory: pytest.TempPathFactory) -> MakeTrace:
    folder = tmp_path_factory.mktemp("traces")

    def make(rows: Sequence[CallRow]) -> TraceTable:
        path: Path = folder / "trace.parquet"
        with TraceWriter(path, TraceMetadata("hand", "synthetic"), force=True) as writer:
            writer.append(rows)
        return read_table(path)

    return make


@pytest.fixture(scope="session")
def simulate_rows(make_trace: MakeTrace) -> Simulate:
    """Simulate rows on a one-replica deployment: `sets` are `--set` texts, costs in seconds."""

    def go(
        rows: Sequence[CallRow],
        *,
        sets: Sequence[str] = (),
        kv_tokens: int = 1 << 20,
        swa_tokens: int | None = None,
        slots: int = 64,
        workload: WorkloadOptions | None = None,
        cost: Any = None,
        dp: int = 1,
        **options: Any,
    ) -> RunResult:
        deployment = config.load(
            "4xB200 V4-Flash DPA4+EP4 sglang",
            sets=[
                "speculation.kind=off",
                "speculation.draft_tokens=0",
                f"hardware.num_gpus={max(4, dp)}",
                f"parallel.attention_dp={dp}",
                f"parallel.attention_tp={4 if dp == 1 else max(4, dp) // dp}",
                "engine.cpu_request_us=0",
                "engine.cpu_cached_token_us=0",
                *sets,
            ],
        )
        return simulate.run(
            make_trace(rows),
            deployment,
            cost if cost is not None else ConstantCost(0.001),
            workload or WorkloadOptions(arrivals="trace"),
            pools=small_pools(kv_tokens, swa_tokens, slots),
            **options,
        )

    return go
