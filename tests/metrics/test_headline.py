"""What a run says first: the sentence, what limits it, what to try; from evidence, in a fixed order."""

from __future__ import annotations

import copy

import pytest

from v4sim import config
from v4sim.config import resolve
from v4sim.metrics.headline import headline
from v4sim.metrics.limits import limits


@pytest.fixture
def calm():
    """Figures of a run without any trouble."""
    dist = {"count": 100, "mean": 200.0, "p50": 150.0, "p95": 900.0}
    return {
        "ttft_ms": {"all": dict(dist)},
        "tpot_ms": {"count": 90, "p50": 11.4},
        "step_ms": {
            "decode": {"count": 9, "p95": 10.0},
            "mixed": {"count": 9, "p95": 50.0},
            "prefill": {"count": 0},
        },
        "itl_ms": {"count": 1000, "p50": 9.0, "p95": 20.0},
        "itl_burst_ms": {"count": 500, "p50": 22.8, "p95": 40.0},
        "calls": {"injected": 100, "completed": 100, "rejected": 0, "aborted": 0, "running": 0, "queued": 0},
        "blocked": {"queue": {"calls": 5, "time_s": 0.5}},
        "hit": {"lost_tokens": 100, "lost_swa_tokens": 0, "lost_moved_tokens": 0},
        "tokens": {"prompt": 100_000},
        "ranks": [{"attention_s": 1.0}, {"attention_s": 1.1}],
        "cost": {"idle_share": 0.2, "amortised_per_task": 0.2776},
        "parts_s": {"moe": 5.0, "index_scan": 6.0, "hca": 1.0},
        "throughput": {"requests_per_s": 0.569},
    }


@pytest.fixture(scope="module")
def deployment():
    return resolve(config.load("4xB200 V4-Flash DPA4+EP4 sglang"))


def names(metrics):
    return [limit.name for limit in limits(metrics)]


def test_without_trouble_the_largest_part_of_a_step_is_the_limit(calm):
    (only,) = limits(calm)
    assert only.name == "step_index_scan"
    assert only.share == 0.5
    assert "50% of step time" in only.says


def test_a_host_that_holds_the_steps_is_told(calm):
    """Launches count as overhead: of prefills, and of decodes beyond the captured sizes."""
    calm["parts_s"]["overhead"] = 7.0
    (only,) = limits(calm)
    assert only.name == "step_overhead"
    assert "the host launches one by one" in only.says
    for option in ("chunked_prefill_tokens", "cuda_graph_max_bs", "cpu_launch_us"):
        assert f"engine.{option}" in only.try_next


def test_failed_calls_come_first(calm):
    calm["calls"] |= {"rejected": 3, "aborted": 2, "completed": 95}
    assert names(calm) == ["failed_calls", "step_index_scan"]
    assert "5 of 100 calls" in limits(calm)[0].says


@pytest.mark.parametrize("reason", ["kv", "swa", "slots", "budget", "queue", "front_end"])
def test_what_calls_wait_for_is_named(calm, reason):
    # All calls together take 20 s to their first token.
    calm["blocked"] = {reason: {"calls": 9, "time_s": 5.0}, "other": {"calls": 50, "time_s": 1.0}}
    first = limits(calm)[0]
    # Nine calls may queue for two steps of 50 ms each before it is a shortage.
    assert (first.name, first.share) == (f"waiting_{reason}", (5.0 - 0.9) / 20 if reason == "queue" else 0.25)


def test_waiting_for_a_batch_to_form_is_no_limit(calm):
    calm["blocked"] = {"queue": {"calls": 100, "time_s": 9.9}}
    assert names(calm) == ["step_index_scan"]


def test_a_little_waiting_is_no_limit(calm):
    calm["blocked"]["kv"] = {"calls": 9, "time_s": 1.9}
    assert names(calm) == ["step_index_scan"]


@pytest.mark.parametrize(
    ("tails", "moved", "name", "option"),
    [
        (15_000, 15_000, "lost_swa_tails", "engine.swa_full_ratio"),
        (2_000, 15_000, "lost_to_routing", "router.policy"),
        (2_000, 2_000, "lost_to_eviction", "engine.mem_fraction"),
    ],
)
def test_what_prefixes_were_lost_to_is_told(calm, tails, moved, name, option):
    calm["hit"] = {"lost_tokens": 20_000, "lost_swa_tokens": tails, "lost_moved_tokens": moved}
    first = limits(calm)[0]
    assert (first.name, first.share) == (name, 0.2)
    assert option in first.try_next


def test_skew_and_idling(calm):
    calm["ranks"] = [
        {"attention_s": 14.18},
        {"attention_s": 5.66},
        {"attention_s": 6.37},
        {"attention_s": 8.07},
    ]
    calm["cost"]["idle_share"] = 0.95
    assert names(calm) == ["rank_skew", "idle_gpus", "step_index_scan"]
    assert "1.65 times" in limits(calm)[0].says


def test_every_option_that_is_suggested_exists(calm, deployment):
    """Advice that names a key of the deployment must name a real one."""
    import re

    from v4sim.metrics.limits import PARTS_TRY, WAITS

    calm["calls"] |= {"rejected": 3}
    calm["hit"] = {"lost_tokens": 20_000, "lost_swa_tokens": 15_000, "lost_moved_tokens": 0}
    calm["ranks"] = [{"attention_s": 9.0}, {"attention_s": 1.0}]
    calm["cost"]["idle_share"] = 0.9
    evicted, moved = copy.deepcopy(calm), copy.deepcopy(calm)
    evicted["hit"]["lost_swa_tokens"] = moved["hit"]["lost_swa_tokens"] = 0
    moved["hit"]["lost_moved_tokens"] = 15_000
    texts = [limit.try_next for run in (calm, evicted, moved) for limit in limits(run)]
    texts += [text for _, text in (*WAITS.values(), *PARTS_TRY.values())]
    keys = {key for text in texts for key in re.findall(r"\b(\w+)\.(\w+)\b", text)}
    assert len(keys) > 10
    for section, option in sorted(keys):
        assert hasattr(getattr(deployment, section), option), f"{section}.{option}"


def test_the_sentence(calm, deployment):
    found = headline(calm, deployment, sessions=31.5)
    assert found["sentence"] == (
        "31.5 sessions at a time (0.569 calls/s) on 4 B200 with V4-Flash: 95 % of calls see a first token "
        "within 900 ms, then a token every 11.4 ms (median TPOT), and a task costs $0.278; it "
        "meets its objective."
    )
    assert (found["number"], found["unit"]) == (0.2776, "$ per task")
    assert len(found["what_limits"]) == len(found["try_next"]) == 1


def test_a_missed_objective_is_said(calm, deployment):
    calm["ttft_ms"]["all"]["p95"] = 12_500.0
    calm["itl_ms"]["p95"] = 250.0
    sentence = headline(calm, deployment, None)["sentence"]
    assert "within 12.5 s" in sentence
    assert sentence.endswith(
        "it misses the 10 s to first token and the 100 ms between tokens (p95 ITL) of its objective."
    )


def test_the_objective_says_which_form_of_gap_it_means(calm, deployment):
    burst = resolve(config.load("4xB200 V4-Flash DPA4+EP4 sglang", ["objective.itl_form=burst"]))
    calm["itl_burst_ms"]["p95"] = 150.0
    assert "it meets its objective" in headline(calm, deployment, None)["sentence"]
    assert "misses the 100 ms between bursts (p95 ITL)" in headline(calm, burst, None)["sentence"]


def test_without_a_task_the_number_is_the_time_to_first_token(calm, deployment):
    del calm["cost"]["amortised_per_task"]
    found = headline(calm, deployment, None)
    assert (found["number"], found["unit"]) == (0.9, "s to first token, p95")
    assert "task" not in found["sentence"]


def test_a_run_that_served_nobody_says_so(calm, deployment):
    calm["ttft_ms"]["all"] = {"count": 0}
    del calm["cost"]["amortised_per_task"]
    found = headline(calm, deployment, 3.0)
    assert found["sentence"] == "No call got a first token on 4 B200 with V4-Flash."
    assert found["number"] is None
