"""Intervals: what a draw moves, that it is repeatable, and what counts as noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from v4sim.acceptance import acceptance_table, mean_length
from v4sim.backtest.deploy import deploy
from v4sim.backtest.intervals import ACCEPTANCE_LOG_SD, drawn_options, intervals, published_noise
from v4sim.backtest.observe import family_of
from v4sim.backtest.replay import replay
from v4sim.backtest.schema import Target, read_targets
from v4sim.cost import engine_constants

Make = Callable[..., Target]


def test_an_interval_is_repeatable_and_holds_the_prediction(target: Make) -> None:
    one = target(workload={"isl": 4000, "osl": 20})
    band = intervals(one, 12)
    assert band == intervals(one, 12)
    (label,) = band
    low, high = band[label]
    predicted = replay(one).predictions[0].predicted
    assert predicted is not None
    assert low < predicted < high
    assert 0.05 < (high - low) / predicted < 0.6


def test_a_draw_moves_what_the_source_leaves_open_and_nothing_else(target: Make) -> None:
    spec = {"kind": "mtp", "steps": 3, "draft_tokens": 3}
    open_ = deploy(target(engine="sglang 0.5.15", moe_backend="flashinfer_mxfp4", spec=spec)).deployment
    stated = deploy(target(engine="sglang 0.5.15", spec=spec | {"acceptance_length": 2.5})).deployment
    lengths, token_us = [], []
    for draw in range(300):
        changed = drawn_options(draw)(open_)
        rates = acceptance_table(changed.speculation.acceptance).rates["reasoning"][:3]
        lengths.append(math.log(mean_length(rates)))
        token_us.append(changed.engine.cpu_cached_token_us)
        assert drawn_options(draw)(stated).speculation == stated.speculation
    central = mean_length(acceptance_table("v4-pro-mtp").rates["reasoning"][:3])
    assert np.median(lengths) == pytest.approx(math.log(central), abs=0.02)
    assert np.std(lengths) == pytest.approx(ACCEPTANCE_LOG_SD, rel=0.2)
    published = engine_constants("sglang").cpu_cached_token_us.value
    assert np.median(token_us) == pytest.approx(published, rel=0.03)
    # 80 % of the draws lie in the range that the campaign published.
    assert np.mean([2.2 <= us <= 3.0 for us in token_us]) == pytest.approx(0.8, abs=0.08)


def test_noise_is_what_published_runs_differ_by_and_leaves_its_own_target_out() -> None:
    noise = published_noise("")
    assert 0.05 < noise["ttft"] < 0.15
    assert noise["tpot"] < noise["ttft"]
    assert published_noise("SGL-b200-flash-fp4-ll-c1")["ttft"] < noise["ttft"]  # it has the widest pair
    metrics = [m for t in read_targets("built-in").targets for m in t.metrics]
    runs = [m.runs for m in metrics if m.runs and family_of(m.name) == "tpot"]
    by_hand = [math.log(max(r.values()) / min(r.values())) ** 2 / 2 for r in runs]
    assert noise["tpot"] == pytest.approx(math.sqrt(np.mean(by_hand)), rel=1e-9)
