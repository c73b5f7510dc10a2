"""The ranking: known bottlenecks are found, readings are paired, and nothing is sure that is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from v4sim.errors import ConfigError
from v4sim.limiter import OBJECTIVES, Study, draws_of, objective, resources, study
from v4sim.limiter.sample import Sample
from v4sim.scenario import Scenario
from v4sim.workload import WorkloadOptions
from v4traces import CallRow

Make = Callable[..., Scenario]
LONE = [CallRow(session_id="one", turn=0, prompt_tokens=40_000, output_tokens=50, trigger="user")]


def asked(
    scenario: Scenario,
    goal: str = "ttft_warm_p95",
    names: Sequence[str] = (),
    step: float = 0.5,
    repeats: int = 1,
    jobs: int = 1,
) -> Study:
    return study(
        scenario,
        scenario.run(),
        objective(goal),
        step=step,
        repeats=repeats,
        asked=resources(names),
        jobs=jobs,
    )


def gains(found: Study) -> dict[str, float]:
    return {one.resource.name: one.gain for one in found.outcomes}


@pytest.mark.parametrize(
    ("sets", "goal", "short"),
    [
        (["engine.max_running=4"], "ttft_warm_p95", "slots"),  # one request a rank: the rest queues
        (["engine.cpu_step_us=60000", "engine.overlap=false"], "tpot_p95", "host_step"),
        (["engine.cpu_cached_token_us=300"], "ttft_warm_p95", "front_end"),
    ],
)
def test_a_bottleneck_that_was_built_in_is_found(
    scenario: Make, sets: list[str], goal: str, short: str
) -> None:
    names = ["gpu", "links", "host_step", "front_end", "kv_pool", "swa_pool", "slots", "chunk"]
    found = asked(scenario(sets=sets), goal, names)
    assert found.limiter is not None
    assert found.limiter.resource.name == short
    assert found.outcomes[0] is found.limiter


def test_a_full_kv_pool_is_found(scenario: Make) -> None:
    """A rank holds one of its three sessions at a time."""
    tight = ["engine.kv_tokens_per_rank=6400", "engine.swa_tokens_per_rank=6400"]
    found = asked(scenario(sets=tight), names=["gpu", "kv_pool", "swa_pool", "slots", "chunk"], step=1.0)
    assert found.limiter is not None
    assert found.limiter.resource.name == "kv_pool"


@pytest.mark.parametrize("goal", ["ttft_p95", "e2e_p95", "tpot_p95"])
def test_a_lone_call_is_never_slower_with_more_of_anything(scenario: Make, goal: str) -> None:
    alone = scenario(LONE, workload=WorkloadOptions(sessions=1, window="0%:100%"))
    found = gains(
        asked(alone, goal, ["gpu", "attention", "index", "experts", "links", "host_step", "front_end"])
    )
    assert min(found.values()) >= 0.0
    assert found["gpu"] >= max(found["attention"], found["index"], found["experts"]) > 0.0


def test_decode_is_kernels_and_links(scenario: Make) -> None:
    """Where the host is hidden, both half as fast again save a third, but for the sampler's launches."""
    alone = scenario(LONE, workload=WorkloadOptions(sessions=1, window="0%:100%"))
    found = gains(asked(alone, "tpot_p95", ["gpu", "links"], step=0.5))
    assert found["gpu"] + found["links"] == pytest.approx(1 - 1 / 1.5, abs=5e-3)


def test_nothing_is_sure_where_nothing_changes(scenario: Make) -> None:
    found = asked(scenario(), names=["kv_pool", "slots"])
    assert found.limiter is None
    for one in found.outcomes:
        assert (one.gain, one.difference, one.interval, one.is_sure) == (0.0, 0.0, [0.0, 0.0], False)


def test_few_sessions_make_nothing_sure(scenario: Make) -> None:
    alone = scenario(LONE, workload=WorkloadOptions(sessions=1, window="0%:100%"))
    found = asked(alone, "ttft_p95", ["gpu"])
    assert found.outcomes[0].gain > 0
    assert found.outcomes[0].interval is None
    assert found.limiter is None


def test_calls_that_are_served_at_last_count_as_all_of_it(scenario: Make) -> None:
    """Prompts above the pool are refused; with twice the pool they fit."""
    tight = ["engine.kv_tokens_per_rank=5120", "engine.swa_tokens_per_rank=8192"]
    found = asked(scenario(sets=tight), names=["kv_pool", "gpu"], step=1.0)
    assert np.isinf(found.value)
    assert gains(found) == {"kv_pool": 1.0, "gpu": 0.0}
    assert found.limiter is not None
    json.dumps(found.as_dict())


def test_the_same_question_has_the_same_answer(scenario: Make) -> None:
    first, second = (asked(scenario(), names=["gpu", "chunk"], repeats=2).as_dict() for _ in range(2))
    assert first == second
    assert first["repeats"] == 2


def test_several_processes_find_the_same(scenario: Make) -> None:
    world = scenario(sets=["engine.cpu_step_us=0"])
    alone, shared = (
        asked(world, names=["gpu", "host_step", "chunk"], repeats=2, jobs=jobs).as_dict() for jobs in (1, 2)
    )
    assert alone == shared
    assert [one["name"] for one in shared["unasked"]] == ["host_step"]


def test_a_p95_of_few_calls_says_how_few(scenario: Make) -> None:
    few = asked(scenario(), names=["gpu"], repeats=2)
    assert few.calls == 2 * 36
    assert few.caution is not None
    assert few.caution.startswith("the p95 of 36 calls a draw is the word of 2 of them")
    assert asked(scenario(), "ttft_warm_mean", ["gpu"]).caution is None


def test_what_one_draw_denies_is_not_sure(scenario: Make) -> None:
    found = asked(scenario(sets=["engine.max_running=4"]), names=["slots"], repeats=2).outcomes[0]
    assert found.is_sure
    assert found.worst_gain > 0
    assert not replace(found, worst_gain=-0.01).is_sure
    assert not replace(found, better_share=0.98).is_sure


def test_draws_of_the_workload(scenario: Make) -> None:
    closed = draws_of(scenario(), 3)
    assert [one.workload.shuffle for one in closed] == [None, 1, 2]
    poisson = scenario(workload=WorkloadOptions(arrivals="poisson", rate_per_s=1.0), seed=7)
    assert [one.seed for one in draws_of(poisson, 3)] == [7, 8, 9]
    assert len(draws_of(scenario(workload=WorkloadOptions(arrivals="trace")), 3)) == 1


def test_another_order_is_the_same_work(scenario: Make) -> None:
    plain = scenario(workload=WorkloadOptions(sessions=3))
    other = replace(plain, workload=replace(plain.workload, shuffle=1))
    first, second = plain.run(), other.run()
    assert sorted(first.calls["row"].tolist()) == sorted(second.calls["row"].tolist())
    assert first.calls["row"].tolist() != second.calls["row"].tolist()


@pytest.mark.parametrize("goal", [one.name for one in OBJECTIVES])
def test_every_objective_reads_the_run_that_it_is_of(scenario: Make, goal: str) -> None:
    world = scenario()
    result = world.run()
    sample = Sample.of(world, result, objective(goal))
    reading = sample.read(result)
    calls = result.calls
    warm = calls["turn"] > 0  # whatever the cache still had of it
    ttft = (calls["first_seen_ns"] - calls["sent_ns"]) / 1e6
    most = int(np.ceil(0.9 * len(ttft)))
    span_s = (np.sort(calls["last_token_ns"])[most - 1] - calls["sent_ns"].min()) / 1e9
    expected = {
        "ttft_warm_p95": np.quantile(ttft[warm], 0.95),
        "ttft_warm_mean": ttft[warm].mean(),
        "ttft_p95": np.quantile(ttft, 0.95),
        "e2e_p95": np.quantile((calls["last_token_ns"] - calls["sent_ns"]) / 1e6, 0.95),
        "goodput": most / span_s,  # the objectives are generous here
        "throughput": most / span_s,
    }
    if goal in expected:
        assert reading.value == pytest.approx(expected[goal])
    assert reading.draws is not None
    assert reading.draws.min() <= reading.value <= reading.draws.max()


def test_calls_are_found_again_in_whatever_order_they_came(scenario: Make) -> None:
    world = scenario()
    result = world.run()
    sample = Sample.of(world, result, objective("ttft_warm_p95"))
    order = np.random.default_rng(5).permutation(result.num_calls)
    mixed = {name: [column[i] for i in order] for name, column in result.calls.items()}
    first, second = sample.read(result), sample.read(replace(result, calls=mixed))
    assert first.value == second.value
    assert np.array_equal(first.draws, second.draws)


def test_goodput_counts_calls_in_time(scenario: Make) -> None:
    strict = scenario(sets=["objective.ttft_p95_s=0.000001"])
    result = strict.run()
    assert Sample.of(strict, result, objective("goodput")).read(result).value == 0.0


def test_a_straggler_does_not_decide_the_rate_of_all(scenario: Make) -> None:
    """One answer of thirty thousand tokens runs for minutes after the others: the rate is theirs."""
    plain = [
        CallRow(session_id=f"s{number:02}", turn=0, prompt_tokens=3_000, output_tokens=60 + number)
        for number in range(40)
    ]
    longer = [*plain[:-1], replace(plain[-1], output_tokens=30_000)]
    rates, ends = [], []
    for rows in (plain, longer):
        world = scenario(rows, workload=WorkloadOptions(sessions=40, window="0%:100%"))
        result = world.run()
        ends.append(int(np.max(result.calls["last_token_ns"])))
        rates.append(Sample.of(world, result, objective("throughput")).read(result).value)
    assert ends[1] > 10 * ends[0]
    assert rates[1] == pytest.approx(rates[0], rel=0.1)


def test_calls_that_were_not_served_are_not_done(scenario: Make) -> None:
    """The rate is over the time of those that were, and nobody else counts."""
    world = scenario()
    result = world.run()
    sample = Sample.of(world, result, objective("throughput"))
    lost = np.arange(result.num_calls) % 2 == 0
    last = np.where(lost, -1, np.asarray(result.calls["last_token_ns"]))
    done = np.where(lost, "rejected", np.asarray(result.calls["done"], dtype=object))
    broken = replace(result, calls={**result.calls, "last_token_ns": last, "done": done.tolist()})
    span_s = (last.max() - np.min(result.calls["sent_ns"])) / 1e9
    assert sample.read(broken).value == pytest.approx((~lost).sum() / span_s)


def test_questions_without_an_answer(scenario: Make) -> None:
    with pytest.raises(ConfigError, match=r"'speed' is not an objective; choose one of: ttft_warm_p95 \("):
        objective("speed")
    with pytest.raises(ConfigError, match=r"a step of 0 is no share"):
        asked(scenario(), step=0.0)
    with pytest.raises(ConfigError, match="0 repeats"):
        asked(scenario(), repeats=0)
    with pytest.raises(ConfigError, match="on 0 processes"):
        asked(scenario(), jobs=0)
    alone = scenario(LONE, workload=WorkloadOptions(sessions=1, window="0%:100%"))
    with pytest.raises(ConfigError, match="no call in the steady window has a ttft_warm_p95"):
        asked(alone)
