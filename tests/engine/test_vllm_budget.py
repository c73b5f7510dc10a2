"""vLLM's one token budget: decodes first, chunks take what is left. Steps of 1 ms, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from v4traces import CallRow

Watch = Callable[..., Any]
PAGE = 256


def vllm(*sets: str, late: bool = False) -> list[str]:
    asynchronous = str(late).lower()
    names = [name if name.startswith("speculation.") else f"engine.{name}" for name in sets]
    return ["engine.kind=vllm", f"engine.async_scheduling={asynchronous}", *names]


def call(name: str, prompt: int, output: int = 1, at_ms: float = 0.0, **more: Any) -> CallRow:
    return CallRow(
        session_id=name, turn=0, prompt_tokens=prompt, output_tokens=output, arrival_s=at_ms / 1e3, **more
    )


def test_a_chunk_is_what_the_decodes_leave_to_the_token(watch: Watch) -> None:
    rows = [call("a", 10, 12), call("b", 3000, 2, at_ms=2.5)]
    seen = watch(rows, sets=vllm("max_batched_tokens=1024"))
    assert seen.work()[:7] == [(0, 10), (1, 0), (1, 0), (1, 1023), (1, 1023), (1, 954), (2, 0)]


def test_a_long_prompt_never_stops_decodes(watch: Watch) -> None:
    rows = [call("a", 10, 30), call("b", 20_000, 2, at_ms=2.5)]
    seen = watch(rows, sets=vllm("max_batched_tokens=1024"))
    assert seen.ms("last_token_ns")[0] == 30.0


def test_a_verify_window_counts_with_all_its_drafts(watch: Watch) -> None:
    speculation = ["speculation.kind=mtp", "speculation.draft_tokens=3", "speculation.acceptance=constant:0"]
    rows = [call("a", 10, 12), call("b", 3000, 2, at_ms=2.5)]
    seen = watch(rows, sets=vllm("max_batched_tokens=1024", *speculation))
    assert seen.work()[3] == (1, 1020)


def test_several_prompts_share_a_step_in_order_and_the_last_is_cut(watch: Watch) -> None:
    rows = [call("a", 300), call("b", 2000), call("c", 100)]
    seen = watch(rows, sets=vllm("max_batched_tokens=1024"))
    assert seen.work()[:3] == [(0, 1024), (0, 1024), (0, 252 + 100)]
    assert seen.admits == [(0.0, 0), (0.0, 1), (2.0, 2)]
    assert seen.by_row("wait_budget_ns") == [0, 0, 2_000_000]


def test_the_threshold_cuts_every_prompt_while_there_are_others_to_come_along(watch: Watch) -> None:
    rows = [call("a", 1000), call("b", 500), call("c", 30)]
    seen = watch(rows, sets=vllm("max_batched_tokens=1024", "long_prefill_token_threshold=200"))
    assert seen.work()[:4] == [(0, 430), (0, 400), (0, 300), (0, 400)]
    assert seen.ms("first_token_ns") == [4.0, 3.0, 1.0]


def test_the_number_of_sequences_is_capped(watch: Watch) -> None:
    seen = watch([call(f"s{i}", 10, 5) for i in range(3)], sets=vllm("max_num_seqs=2"))
    assert seen.ms("admit_ns") == [0.0, 0.0, 5.0]
    assert seen.by_row("wait_slots_ns") == [0, 0, 5_000_000]


@pytest.mark.parametrize(("reserve", "at_ms"), [(True, 20.0), (False, 3.0)])
def test_a_newcomer_needs_room_for_its_whole_prompt_or_for_its_first_chunk(
    watch: Watch, reserve: bool, at_ms: float
) -> None:
    """a holds one page of four until it ends at 20 ms; b's prompt needs four, its first chunk two."""
    rows = [call("a", 10, 20), call("b", 1000, 2, at_ms=2.5)]
    sets = vllm("max_batched_tokens=512", f"reserve_full_isl={str(reserve).lower()}", "prefix_cache=false")
    seen = watch(rows, sets=sets, kv_tokens=4 * PAGE)
    assert seen.ms("admit_ns")[1] == at_ms
    assert seen.by_row("wait_kv_ns")[1] == (17_000_000 if reserve else 0)


def test_room_means_free_now_not_free_of_promises(watch: Watch) -> None:
    """a has computed 512 of 1500 tokens when b comes, goes on to 768, and b needs the four pages left.

    That a will want four more pages itself is no reason to wait: the shortage is met by preemption.
    """
    rows = [call("a", 1500, 2), call("b", 1000, 2, at_ms=0.5)]
    sets = vllm("max_batched_tokens=512", "long_prefill_token_threshold=256", "prefix_cache=false")
    seen = watch(rows, sets=sets, kv_tokens=7 * PAGE)
    assert seen.admits[:2] == [(0.0, 0), (1.0, 1)]
    assert seen.by_row("retractions") == [0, 1]


@pytest.mark.parametrize(("watermark", "at_ms"), [(0.0, 3.0), (0.5, 20.0)])
def test_the_watermark_keeps_a_share_free_while_something_runs(
    watch: Watch, watermark: float, at_ms: float
) -> None:
    rows = [call("a", 10, 20), call("b", 500, 2, at_ms=2.5)]
    sets = vllm(f"watermark={watermark}", "prefix_cache=false")
    seen = watch(rows, sets=sets, kv_tokens=4 * PAGE)
    assert seen.ms("admit_ns")[1] == at_ms
    alone = watch([call("b", 500, 2)], sets=sets, kv_tokens=4 * PAGE)
    assert alone.ms("admit_ns") == [0.0]


def test_a_newcomer_that_does_not_fit_preempts_nobody_and_holds_up_who_is_behind(watch: Watch) -> None:
    rows = [call("a", 600, 20), call("big", 600, 2, at_ms=1.5), call("small", 10, 2, at_ms=1.6)]
    seen = watch(rows, sets=vllm("prefix_cache=false"), kv_tokens=4 * PAGE)
    assert seen.by_row("retractions") == [0, 0, 0]
    assert seen.ms("admit_ns") == [0.0, 20.0, 20.0]


def test_no_room_is_held_for_output(watch: Watch) -> None:
    """SGLang would keep b out for what a and b announce; vLLM admits as long as the prompt fits."""
    rows = [
        call("a", 200, 100, max_output_tokens=4096),
        call("b", 200, 2, at_ms=5, max_output_tokens=4096),
    ]
    seen = watch(rows, sets=vllm(), kv_tokens=4 * PAGE)
    assert seen.ms("admit_ns")[1] == 5.0


def test_ranks_mix_prefill_and_decode_as_they_like(watch: Watch) -> None:
    """No agreement on modes, with speculation either: the peer's decodes go on."""
    speculation = ["speculation.kind=mtp", "speculation.draft_tokens=1", "speculation.acceptance=constant:0"]
    rows = [call("a", 10, 12), call("b", 3000, 3, at_ms=2.5)]
    seen = watch(rows, sets=vllm("max_batched_tokens=1024", *speculation), dp=2)
    during = [step.work for step in seen.steps if step.work[1][1]]
    assert [work[0] for work in during] == [(1, 0)] * 3


def test_with_a_cadence_decodes_run_alone_between_two_steps_that_prefill(watch: Watch) -> None:
    """a decodes, so b's chunks come in every fourth step, and c, with one token to compute, at once."""
    rows = [call("a", 10, 40), call("b", 1500, 2, at_ms=2.5), call("c", 1, 2, at_ms=6.5)]
    seen = watch(rows, sets=vllm("max_batched_tokens=513", "prefill_schedule_interval=4"))
    assert seen.work()[:8] == [(0, 10), (1, 0), (1, 0), (1, 0), (1, 512), (1, 0), (1, 0), (1, 1)]
    assert seen.ms("admit_ns") == [0.0, 4.0, 7.0]


def test_a_cadence_holds_nobody_back_while_nobody_decodes(watch: Watch) -> None:
    seen = watch([call("a", 2000)], sets=vllm("max_batched_tokens=512", "prefill_schedule_interval=4"))
    assert seen.ms("first_token_ns") == [4.0]


def test_while_a_queue_cannot_be_emptied_there_is_no_cadence(watch: Watch) -> None:
    """c is left in the queue behind b, so every step prefills until it is in; its rest waits again."""
    rows = [call("a", 10, 40), call("b", 1500, 2, at_ms=2.5), call("c", 500, 2, at_ms=2.6)]
    seen = watch(rows, sets=vllm("max_batched_tokens=513", "prefill_schedule_interval=4"))
    assert [tokens for _, tokens in seen.work()[4:11]] == [512, 512, 512, 0, 0, 0, 464]
