"""Runs that laws are held to: real ones of the engine, small enough to break by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from v4sim import config, simulate
from v4sim.capacity import RankPools
from v4sim.config import Deployment
from v4sim.cost.base import ConstantCost
from v4sim.laws import check_laws
from v4sim.results import RunResult
from v4sim.workload import WorkloadOptions
from v4traces import CallRow, Finding, TraceMetadata, TraceTable, TraceWriter, read_table

Rows = Sequence[CallRow]


@dataclass(frozen=True, slots=True)
class World:
    """A run, what it replayed and where."""

    result: RunResult
    table: TraceTable
    deployment: Deployment

    def broken(self) -> list[Finding]:
        return check_laws(self.result, self.table, self.deployment)

    def laws(self) -> set[str]:
        return {finding.law for finding in self.broken()}

    def with_calls(self, call: int, **values: Any) -> World:
        """The same run, but for some columns of one call."""
        columns = {
            name: column.copy() if isinstance(column, np.ndarray) else list(column)
            for name, column in self.result.calls.items()
        }
        for name, value in values.items():
            columns[name][call] = value
        return World(replace(self.result, calls=columns), self.table, self.deployment)

    def with_fields(self, **fields: Any) -> World:
        return World(replace(self.result, **fields), self.table, self.deployment)

    def copied(self) -> World:
        """A run whose totals may be changed in place."""
        return World(copy.deepcopy(self.result), self.table, self.deployment)


@pytest.fixture(scope="session")
def simulate_rows(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., World]:
    folder = tmp_path_factory.mktemp("traces")

    def go(
        rows: Rows,
        *,
        sets: Sequence[str] = (),
        kv_tokens: int = 1 << 20,
        swa_tokens: int = 1 << 20,
        slots: int = 64,
        workload: WorkloadOptions | None = None,
        **options: Any,
    ) -> World:
        path: Path = folder / "trace.parquet"
        with TraceWriter(path, TraceMetadata("hand", "synthetic"), force=True) as writer:
            writer.append(rows)
        table = read_table(path)
        deployment = config.load(
            "4xB200 V4-Flash DPA4+EP4 sglang",
            sets=["parallel.attention_dp=2", "parallel.attention_tp=2", *sets],
        )
        result = simulate.run(
            table,
            deployment,
            ConstantCost(0.02, 0.001, 0.00001),
            workload or WorkloadOptions(arrivals="trace"),
            pools=RankPools(kv_tokens, swa_tokens, slots, 0, (), kv_tokens),
            **options,
        )
        return World(result, table, config.resolve(deployment))

    return go
