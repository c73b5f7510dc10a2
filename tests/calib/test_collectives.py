"""Collectives: right between two processes on a CPU; on one GPU absent, with the reason."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from v4calib.device import EAGER_HOT
from v4calib.devices.ranks import Ranks
from v4calib.errors import CalibError
from v4calib.fit import completed, fit
from v4calib.grid import Point, grid
from v4calib.journal import Journal
from v4calib.operations import OPERATIONS
from v4calib.operations.collectives import WAYS
from v4sim.cost import load_profile

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install 'v4sim[gpu]'"
)
OPERATION = OPERATIONS["collective"]


def point(way: str, size: int, gpus: int = 2) -> Point:
    return Point("collective", "any", (("bytes", size), ("way", way), ("gpus", gpus)))


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    started = Ranks("cpu")
    yield started
    started.close()


@needs_torch
@pytest.mark.parametrize("way", WAYS)
def test_two_processes_agree_on_what_they_bring(ranks: Ranks, way: str) -> None:
    for size in (8, 1000, 1 << 16):
        case = ranks.case(point(way, size))
        assert case.verify() is None
        times = case.sample_us(case, EAGER_HOT, 3)
        assert len(times) == 3
        assert min(times) > 0
    assert case.verify() is None, "also after it was timed"


@needs_torch
def test_a_wrong_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank of one, whose all-to-all forgets a value."""
    import torch.distributed as dist

    from v4calib.devices.rank_child import Rank

    with Ranks("cpu").folder as folder:
        rank = Rank("cpu", 0, 1, os.path.join(folder, "store"))
        try:
            request = {"what": "verify", "way": "all_to_all", "bytes": 64}
            assert rank.answer(request) == {"wrong": None}
            monkeypatch.setattr(dist, "all_to_all_single", lambda made, brought: made.copy_(brought).mul_(2))
            rank.answer({**request, "bytes": 32})
            assert "differs" in rank.answer(request)["wrong"]
        finally:
            dist.destroy_process_group()


@needs_torch
def test_a_rank_that_dies_costs_a_row_and_the_next_point_gets_a_new_group(ranks: Ranks) -> None:
    case = ranks.case(point("all_reduce", 64))
    assert case.verify() is None
    before = ranks.processes(2)
    os.kill(before[1], signal.SIGKILL)
    with pytest.raises(CalibError):
        case.verify()
    assert case.verify() is None
    assert not set(ranks.processes(2)) & set(before)


def test_one_gpu_says_why_there_are_none(fake_device: Callable[..., Any]) -> None:
    facts = fake_device().facts
    reasons = {OPERATION.refuse(p, facts) for p in OPERATION.points("v4-flash", grid("quick"))}
    assert reasons == {f"needs {n} GPUs, this node has 1; stays as published" for n in (2, 4, 8)}
    four = replace(facts, devices=4)
    assert OPERATION.refuse(point("all_reduce", 64, 4), four) is None
    assert OPERATION.refuse(point("all_reduce", 64, 8), four) is not None


def test_gathers_replace_published_tables_and_reductions_do_not(
    fake_device: Callable[..., Any], measure_all: Callable[..., Journal]
) -> None:
    """An engine's own all-reduce is not NCCL's."""
    device = fake_device()
    device.facts = replace(device.facts, devices=8)
    journal = measure_all(device, ["collective"])
    fitted = fit(journal.header, journal.rows)
    assert {f"{name}.gpus{n}" for n in (2, 4, 8) for name in ("all_gather", "all_to_all")} <= set(
        fitted.profile.operations
    )
    gather = fitted.profile.operation("all_gather.gpus8")
    assert (gather.axes[0].points[0], gather.axes[0].points[-1]) == (1 << 13, 1 << 26)
    assert gather.residual.rows > 0, "judged by the message that was held out"
    whole = completed(fitted, load_profile("h200"))
    kinds = {
        name: whole.provenance_of(whole.operation(name)).kind
        for name in (
            "all_gather.gpus8",
            "reduce_scatter.gpus4",
            "all_reduce.sglang.gpus8",
            "all_reduce.nccl.gpus8",
        )
    }
    assert kinds == {
        "all_gather.gpus8": "measured",
        "reduce_scatter.gpus4": "measured",
        "all_reduce.sglang.gpus8": "published",
        "all_reduce.nccl.gpus8": "measured",
    }


def test_a_collective_cannot_beat_the_link(
    fake_device: Callable[..., Any], measure_all: Callable[..., Journal]
) -> None:
    """64 MiB gathered by eight take 56 MiB into each GPU: 130 us at 450 GB/s."""
    device = fake_device(scale={"collective": 1e-2})
    device.facts = replace(device.facts, devices=8)
    rows = measure_all(device, ["collective"]).rows
    broken = [row for row in rows if row.status == "rejected"]
    assert broken
    assert all("nvlink roofline" in row.reason for row in broken)
