"""Who loses its memory when it runs short, and where in the queue the victim waits. Steps of 1 ms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from v4sim.cache.check import check_tree
from v4sim.engine.estimate import NewTokenRatio
from v4sim.engine.probe import Probe
from v4sim.engine.replica import Replica
from v4traces import CallRow

Watch = Callable[..., Any]
PAGE = 256
# No room is kept for output, so that memory can run short at all.
SGLANG = ["engine.clip_max_new_tokens=0", "engine.overlap=false"]
VLLM = ["engine.kind=vllm", "engine.async_scheduling=false"]


def call(name: str, prompt: int, output: int, at_ms: float = 0.0, **more: Any) -> CallRow:
    return CallRow(
        session_id=name, turn=0, prompt_tokens=prompt, output_tokens=output, arrival_s=at_ms / 1e3, **more
    )


# Four pages. Each call holds two when the first one needs a third, for its decode step number 262, which
# starts at 264 ms in SGLang: the second call's prefill took a step of its own. (SGLang admits only while
# a page is to spare, so the younger call has to grow into it first.)
GROWING = [call("a", 250, 300), call("b", 100, 300, at_ms=100)]


def test_sglang_retracts_who_has_generated_least(watch: Watch) -> None:
    """The younger call goes although it needs nothing and its prompt is the shorter one."""
    seen = watch(GROWING, sets=SGLANG, kv_tokens=4 * PAGE)
    assert seen.by_row("retractions") == [0, 1]
    assert seen.ms("last_token_ns")[0] == 301.0
    assert seen.admits == [(0.0, 0), (100.0, 1), (301.0, 1)]


@pytest.mark.parametrize("order", [(250, 100), (100, 250)])
def test_among_equals_sglang_retracts_the_longest_prompt(watch: Watch, order: tuple[int, int]) -> None:
    rows = [call(f"s{prompt}", prompt, 300) for prompt in order]
    seen = watch(rows, sets=SGLANG, kv_tokens=4 * PAGE)
    assert [row for row in (0, 1) if seen.by_row("retractions")[row]] == [order.index(250)]


def test_the_priority_policy_puts_priority_before_length(watch: Watch) -> None:
    rows = [call("a", 250, 300, priority=1), call("b", 100, 300)]
    for policy, victim in (("default", 0), ("priority", 1)):
        sets = [*SGLANG, f"engine.retraction_policy={policy}"]
        seen = watch(rows, sets=sets, kv_tokens=4 * PAGE)
        assert [row for row in (0, 1) if seen.by_row("retractions")[row]] == [victim]


@pytest.mark.parametrize(
    ("sets", "admitted"), [(SGLANG, [0, 1, 2, 1]), (VLLM, [0, 1, 1, 2])], ids=["sglang", "vllm"]
)
def test_sglangs_victim_goes_to_the_end_of_the_queue_vllms_to_its_head(
    watch: Watch, sets: list[str], admitted: list[int]
) -> None:
    rows = [*GROWING, call("c", 300, 5, at_ms=110)]
    seen = watch(rows, sets=sets, kv_tokens=4 * PAGE)
    assert seen.by_row("retractions") == [0, 1, 0]
    assert [row for _, row in seen.admits] == admitted


def test_vllm_preempts_the_newest_although_it_has_generated_as_much(watch: Watch) -> None:
    """By order of admission; SGLang would take the longer prompt, which is the first here."""
    rows = [call("a", 250, 30), call("b", 100, 30)]
    seen = watch(rows, sets=VLLM, kv_tokens=2 * PAGE)
    assert seen.by_row("retractions") == [0, 1]


def test_vllms_newest_is_who_was_admitted_last_not_who_still_prefills(watch: Watch) -> None:
    """A long prompt in small pieces is older than the short call that came in beside it."""
    sets = [*VLLM, "engine.long_prefill_token_threshold=100", "engine.reserve_full_isl=false"]
    rows = [call("long", 1000, 2), call("short", 100, 40)]
    seen = watch(rows, sets=sets, kv_tokens=4 * PAGE)
    assert seen.by_row("retractions") == [0, 1]
    assert [row for _, row in seen.admits] == [0, 1, 1]


def test_a_victim_keeps_its_tokens_and_computes_everything_again(watch: Watch) -> None:
    """b has 164 tokens when it is retracted: it re-prefills 100 + 164, and emits each token once."""
    seen = watch(GROWING, sets=SGLANG, kv_tokens=4 * PAGE)
    prefills = [(step.start_ms, tokens) for step in seen.steps for _, tokens in [step.work[0]] if tokens]
    assert prefills == [(0.0, 250), (100.0, 100), (301.0, 264)]
    assert seen.by_row("recomputed_tokens") == [0, 264]
    assert seen.by_row("computed_tokens") == [250, 100]
    # 264 tokens in one step yield the 165th token; 135 remain.
    assert seen.ms("first_token_ns")[1] == 101.0
    assert seen.ms("last_token_ns")[1] == 301.0 + 1 + 135


@pytest.mark.parametrize(
    ("sets", "hit"),
    [(SGLANG, 512), ([*VLLM, "engine.window_retention=all"], 768), (VLLM, 512)],
    ids=["sglang", "vllm", "vllm-replay"],
)
def test_a_victims_published_pages_stay_a_hit_while_nobody_needs_them(
    watch: Watch, sets: list[str], hit: int
) -> None:
    """SGLang published the prompt's whole pages only; vLLM has hashed those of the output as well.

    But there is nothing to resume from behind the prompt, unless windows are kept everywhere.
    """
    rows = [call("a", 500, 250), call("b", 600, 250, at_ms=3)]
    seen = watch(rows, sets=sets, kv_tokens=6 * PAGE)
    assert seen.by_row("retractions") == [0, 1]
    # b is short of its fourth page when it has 169 tokens.
    readmitted = seen.admits[-1][0]
    assert [step.work[0][1] for step in seen.steps if step.start_ms == readmitted] == [600 + 169 - hit]
    assert seen.by_row("hit_tokens") == [0, 0]  # of the first admission


@pytest.mark.parametrize("sets", [SGLANG, VLLM], ids=["sglang", "vllm"])
def test_one_call_is_always_kept_and_aborted_if_even_alone_it_does_not_fit(
    watch: Watch, sets: list[str]
) -> None:
    seen = watch([call("a", 250, 300), call("b", 10, 2, at_ms=500)], sets=sets, kv_tokens=2 * PAGE)
    assert seen.by_row("done") == ["aborted", "completed"]
    assert seen.by_row("retractions") == [0, 0]


class PoolsAddUp(Probe):
    """At the end what is used is what is cached, node by node."""

    def on_end(self, replicas: list[Replica], now_ns: int) -> None:
        for rank in replicas[0].ranks:
            check_tree(rank.owner.tree)
            assert rank.owner.kv.used == rank.owner.tree.kv_tokens


@pytest.mark.parametrize("at_ms", range(1, 8))
def test_who_has_just_ended_may_lose_its_memory_to_a_call_that_goes_on(
    simulate_rows: Callable[..., Any], at_ms: int
) -> None:
    """Ahead of its results vLLM does not know that b ended with its first token, and takes its pages for a.

    At 4 ms that happens; whenever b comes, nobody computes twice and the pools add up.
    """
    sets = ["engine.kind=vllm", "speculation.kind=mtp", "speculation.draft_tokens=1"]
    rows = [call("a", 246, 100), call("b", 512, 1, at_ms=at_ms, max_output_tokens=100)]
    calls = simulate_rows(rows, sets=sets, kv_tokens=4 * PAGE, probes=(PoolsAddUp(),)).calls
    assert calls["retractions"].tolist() == [0, 0]


def test_nobody_enters_vllms_batch_in_a_step_that_preempts(watch: Watch) -> None:
    """b is preempted at 57 ms and a page is left for its first chunk, yet it waits for the next step."""
    sets = [
        *VLLM,
        "engine.long_prefill_token_threshold=256",
        "engine.reserve_full_isl=false",
        "engine.prefix_cache=false",
    ]
    seen = watch([call("a", 250, 100), call("b", 200, 100)], sets=sets, kv_tokens=3 * PAGE)
    rows = {step.start_ms: step.work[0] for step in seen.steps}
    assert [rows[at] for at in (56.0, 57.0, 58.0)] == [(2, 0), (1, 0), (1, 256)]
    assert seen.admits[:3] == [(0.0, 0), (0.0, 1), (58.0, 1)]


def test_the_ratio_decays_over_600_steps_and_starts_afresh_when_idle() -> None:
    ratio = NewTokenRatio(1.0)
    assert (ratio.value, ratio.floor) == (0.7, pytest.approx(0.098))
    ratio.step(300)
    assert ratio.value == pytest.approx((0.7 + 0.098) / 2)
    ratio.step(300)
    ratio.step(1000)
    assert ratio.value == ratio.floor
    ratio.reset()
    assert ratio.value == 0.7


def test_the_ratio_after_a_retraction_is_what_was_generated_plus_twenty_steps() -> None:
    """(Σ generated + 20 n)/(Σ max_new + 1), and no decay in the step of the retraction itself."""
    ratio = NewTokenRatio(1.0)
    ratio.retracted(generated=300, requests=5, announced=999)
    ratio.step(1)
    assert ratio.value == 0.4
    ratio.step(10)
    assert ratio.value == pytest.approx(0.4 - 10 * (0.7 - 0.098) / 600)
    ratio.retracted(generated=300, requests=5, announced=99)
    assert ratio.value == 1.0


def test_dp_attention_starts_the_ratio_at_0_21() -> None:
    """Conservativeness × 0.3 under DP attention: 0.21, floor 0.0294."""
    ratio = NewTokenRatio(0.3)
    assert ratio.value == pytest.approx(0.21)
    assert ratio.floor == pytest.approx(0.0294)
