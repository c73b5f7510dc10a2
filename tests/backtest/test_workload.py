"""Targets as calls: lengths, warm turns, repetitions, agents, and where a workload is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from v4sim.backtest.schema import Target
from v4sim.backtest.workload import MAX_REQUESTS, Load, at_point, build
from v4sim.errors import ConfigError

Make = Callable[..., Target]
CONTEXT = 1 << 20


def loaded(target: Make, seed: int = 0, **workload: Any) -> Load:
    return build(target(workload=workload).workload, CONTEXT, seed)


def test_fixed_lengths_are_fixed(target: Make) -> None:
    load = loaded(target)
    assert load.table.n == 4
    assert set(load.table.prompt_tokens) == {1000}
    assert set(load.table.output_tokens) == {11}
    assert load.options.sessions == 1
    assert not load.random


def test_uniform_lengths_fill_their_range_and_belong_to_a_seed(target: Make) -> None:
    lengths = {"isl": "uniform[1,8192]", "osl": "uniform[1,1024]"}
    changes: dict[str, Any] = {"length_model": lengths, "num_requests": 512, "concurrency": 256}
    load, again, other = (loaded(target, seed, **changes) for seed in (0, 0, 1))
    prompts = load.table.prompt_tokens
    assert prompts.min() >= 1
    assert prompts.max() <= 8192
    assert prompts.mean() == pytest.approx(4096, rel=0.1)
    assert np.corrcoef(prompts, load.table.output_tokens)[0, 1] == pytest.approx(0, abs=0.15)
    assert (prompts == again.table.prompt_tokens).all()
    assert (prompts != other.table.prompt_tokens).any()


def test_sglangs_client_draws_the_same_lengths_in_every_run(target: Make) -> None:
    """All prompts, then all outputs, from numpy's generator of one seed; a cut run has the first of them."""
    drawn = {"isl": "uniform[1,8192]", "osl": "uniform[1,1024]"}
    work = {"concurrency": 4, "num_requests": 12, "length_model": drawn, "notes": "bench_serving 'random'"}
    one, other = loaded(target, seed=0, **work), loaded(target, seed=1, **work)
    prompts, outputs = one.table.prompt_tokens.tolist(), one.table.output_tokens.tolist()
    client = np.random.RandomState(42)
    assert prompts == client.randint(1, 8193, size=12).tolist()
    assert outputs == client.randint(1, 1025, size=12).tolist()
    assert other.table.prompt_tokens.tolist() == prompts
    assert not one.random
    many = loaded(target, **work | {"num_requests": 5000})
    assert many.cut
    assert (
        many.table.prompt_tokens.tolist() == np.random.RandomState(42).randint(1, 8193, 5000)[:768].tolist()
    )


def test_a_warm_turn_sends_the_same_prompt_again(target: Make) -> None:
    load = loaded(
        target,
        kind="warm_turn",
        isl=10_000,
        cached_tokens=9_728,
        new_tokens=272,
        pooled="turns 2-6 of 3 sessions",
    )
    assert load.table.n == 18
    assert load.first_turn == 1
    warm = load.table.turn > 0
    assert set(load.table.shared_tokens[warm]) == {9_728}
    assert not load.table.shared_tokens[~warm].any()


def test_repetitions_are_runs_of_their_own(target: Make) -> None:
    load = loaded(
        target, concurrency=8, num_requests=24, notes="3 repetitions; the requests of one start together"
    )
    assert (load.repetitions, load.table.n, load.options.sessions, load.together) == (3, 8, 8, True)


def test_a_long_workload_is_cut_and_says_so(target: Make) -> None:
    load = loaded(target, concurrency=16, num_requests=100_000)
    assert load.table.n == MAX_REQUESTS
    assert load.cut
    assert f"{MAX_REQUESTS} of 100000 requests" in load.notes


def test_a_context_label_is_clipped_to_what_fits(target: Make) -> None:
    load = loaded(target, kind="single", isl=CONTEXT, osl=None)
    assert load.longest_tokens < CONTEXT
    assert load.longest_tokens > CONTEXT - 8


def test_agents_have_the_stated_marginals(target: Make) -> None:
    agents: dict[str, Any] = {
        "kind": "agent_trace",
        "isl": 64_000,
        "osl": 400,
        "osl_mean": 2455,
        "osl_p90": 6943,
    }
    load = loaded(target, concurrency=16, num_requests=4000, reuse=0.9, **agents)
    table = load.table
    assert load.reconstructed
    outputs = np.concatenate(
        [
            loaded(target, s, concurrency=16, num_requests=4000, reuse=0.9, **agents).table.output_tokens
            for s in range(4)
        ]
    )
    assert np.median(outputs) == pytest.approx(400, rel=0.25)
    assert outputs.mean() == pytest.approx(2455, rel=0.2)
    whole = table.session >= 16  # the first sessions begin in the middle of their life
    assert table.prompt_tokens[whole].mean() == pytest.approx(64_000, rel=0.15)
    shared = table.shared_tokens[whole].sum() / table.prompt_tokens[whole].sum()
    assert shared == pytest.approx(0.9, abs=0.03)


def test_an_open_loop_arrives_at_its_rate(target: Make) -> None:
    load = loaded(target, kind="open_loop_poisson", request_rate=2.0, num_requests=8)
    assert (load.options.arrivals, load.options.rate_per_s) == ("poisson", 2.0)


def test_a_sub_point_changes_the_workload(target: Make) -> None:
    hand = target()
    assert at_point(hand, {"context_tokens_nominal": 4096, "context_label": "4K"}).isl == 4096
    assert at_point(hand, {"concurrency": 7}).concurrency == 7
    assert at_point(hand, None) == hand.workload
    with pytest.raises(ConfigError, match=r"at\.temperature"):
        at_point(hand, {"temperature": 1})


@pytest.mark.parametrize(
    ("workload", "says"),
    [
        ({"kind": "batch"}, "workload.kind 'batch'"),
        ({"concurrency": None}, "workload.concurrency is null"),
        ({"isl": None}, "workload.isl is null"),
        ({"kind": "open_loop", "concurrency": None}, "request_rate and concurrency are null"),
        ({"length_model": {"isl": "zipf[1,2]"}}, r"length_model\.isl 'zipf"),
        ({"length_model": {"isl": "uniform[9,2]"}}, "above the second"),
    ],
)
def test_a_workload_without_a_rule_is_refused(target: Make, workload: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        loaded(target, **workload)
