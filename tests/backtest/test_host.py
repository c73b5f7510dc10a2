"""What docs/backtest-notes.md says of the host: what one launch time explains, and what drafts cost it."""

from __future__ import annotations

import pytest

from v4sim.backtest.replay import Replayed, replay
from v4sim.backtest.schema import read_targets
from v4sim.config import Deployment


def on_host(target_id: str, **engine: object) -> Replayed:
    target = next(t for t in read_targets("built-in").targets if t.id == target_id)

    def change(deployment: Deployment) -> Deployment:
        return deployment.model_copy(update={"engine": deployment.engine.model_copy(update=engine)})

    return replay(target, seeds=(0,), change=change)


@pytest.mark.parametrize(
    ("target_id", "launch_us"), [("SGL-b200-flash-fp4-bal-c256", 56.0), ("SGL-h200-flash-fp8-bal-c256", 64.0)]
)
def test_one_launch_time_puts_all_numbers_of_a_cell_into_their_ranges(
    target_id: str, launch_us: float
) -> None:
    """Published hosts have 31 to 88 us; with their mean none of the rates and times per token is inside."""
    for prediction in on_host(target_id, cpu_launch_us=launch_us).predictions:
        metric = prediction.metric
        assert metric.low * 0.999 <= prediction.predicted <= metric.high * 1.001, metric.label
    for prediction in on_host(target_id).predictions:
        if prediction.metric.name != "ttft_ms":
            assert not prediction.metric.low <= prediction.predicted <= prediction.metric.high


def test_a_host_that_drafts_hid_would_make_the_verify_step_a_quarter_too_fast() -> None:
    """V26, vLLM with MTP: what is charged for the host is what is missing without it."""
    for target_id in ("V26-greedy", "V26-prob"):
        charged = {p.metric.name: p for p in on_host(target_id).predictions}["verify_step_ms"]
        free = {p.metric.name: p for p in on_host(target_id, cpu_step_us=0.0).predictions}["verify_step_ms"]
        published = charged.metric.value
        assert charged.predicted == pytest.approx(published, rel=0.05)
        assert 0.25 < 1 - free.predicted / published < 0.33
