"""Fixtures that every area may use: the public traces, and small worlds to simulate by hand."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.results import RunResult
    from v4sim.workload import WorkloadOptions
    from v4traces import CallRow, TraceTable

# A busy machine is no failure: no test is timed.
settings.register_profile("v4sim", deadline=None)
settings.load_profile("v4sim")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The public traces that stand beside the checkout; tests that read them are skipped without."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (folder / "weka").is_dir():
        pytest.skip(f"the public traces are not beside the checkout ({folder.parent.name}/{folder.name})")
    return folder


@pytest.fixture
def sigint_heeded() -> Iterator[None]:
    """Children hear SIGINT, even where the tests run in the background of a script, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def make_trace(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[CallRow]], TraceTable]:
    """Rows written and read back, as a user's trace would be."""
    from v4traces import TraceMetadata, TraceWriter, read_table

    path = tmp_path_factory.mktemp("traces") / "trace.parquet"

    def make(rows: Sequence[CallRow]) -> TraceTable:
        with TraceWriter(path, TraceMetadata("hand", "synthetic"), force=True) as writer:
            writer.append(rows)
        return read_table(path)

    return make


@pytest.fixture(scope="session")
def small_deployment() -> Callable[..., Deployment]:
    """One replica of V4-Flash without host time: what a step costs is the test's business."""
    from v4sim import config

    def load(sets: Sequence[str] = (), dp: int = 1) -> Deployment:
        gpus = max(4, dp)
        return config.load(
            "4xB200 V4-Flash DPA4+EP4 sglang",
            sets=[
                f"hardware.num_gpus={gpus}",
                f"parallel.attention_dp={dp}",
                f"parallel.attention_tp={gpus // dp}",
                "parallel.ep=1",
                "engine.cpu_request_us=0",
                "engine.cpu_cached_token_us=0",
                *sets,
            ],
        )

    return load


@pytest.fixture(scope="session")
def simulate_rows(
    make_trace: Callable[[Sequence[CallRow]], TraceTable], small_deployment: Callable[..., Deployment]
) -> Callable[..., RunResult]:
    """Simulate rows in a world to compute by hand: `sets` are `--set` texts, pools are of one rank.

    A step takes 1 ms unless a cost is given, and the window pool is generous unless it is. Windows that vLLM
    keeps take no room unless `kept_blocks` says so.
    """
    from v4sim import simulate
    from v4sim.capacity import RankPools
    from v4sim.cost.base import ConstantCost
    from v4sim.workload import WorkloadOptions

    def go(
        rows: Sequence[CallRow],
        *,
        sets: Sequence[str] = (),
        dp: int = 1,
        kv_tokens: int = 1 << 20,
        swa_tokens: int | None = None,
        slots: int = 64,
        kept_blocks: int = 0,
        workload: WorkloadOptions | None = None,
        cost: Any = None,
        **options: Any,
    ) -> RunResult:
        swa = swa_tokens if swa_tokens is not None else max(kv_tokens, 64 * 1024)
        return simulate.run(
            make_trace(rows),
            small_deployment(sets, dp),
            cost if cost is not None else ConstantCost(0.001),
            workload or WorkloadOptions(arrivals="trace"),
            pools=RankPools(
                kv_tokens, swa, slots, 0, (), kv_tokens, block_tokens=256, window_blocks_kept=kept_blocks
            ),
            **options,
        )

    return go
