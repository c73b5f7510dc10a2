"""Which pool keeps a call out, and who may come first. Pages of 256; steps of 1 ms; no overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from v4traces import CallRow

Watch = Callable[..., Any]
PAGE = 256
SGLANG = ["engine.overlap=false"]
VLLM = ["engine.kind=vllm", "engine.async_scheduling=false"]
ENGINES = [pytest.param(SGLANG, id="sglang"), pytest.param(VLLM, id="vllm")]
WAITS = ("kv", "swa", "slots", "budget")


def call(name: str, prompt: int, output: int = 1, at_ms: float = 0.0, **more: Any) -> CallRow:
    return CallRow(
        session_id=name, turn=0, prompt_tokens=prompt, output_tokens=output, arrival_s=at_ms / 1e3, **more
    )


def waits(seen: Any, row: int) -> dict[str, int]:
    found = {name: int(seen.by_row(f"wait_{name}_ns")[row]) for name in WAITS}
    return {name: ns for name, ns in found.items() if ns}


# -- the window pool ------------------------------------------------------------------------------


@pytest.mark.parametrize(("swa_tokens", "at_ms"), [(2 * 512 + 256, 1.0), (512 + 256, 30.0)])
def test_a_call_waits_for_room_for_its_window(watch: Watch, swa_tokens: int, at_ms: float) -> None:
    """SGLang: a peak of min(extend + max_new, window) + page = 384 tokens must be less than what is free."""
    rows = [call("a", 100, 30), call("b", 100, 2, at_ms=0.5)]
    seen = watch(rows, sets=SGLANG, swa_tokens=swa_tokens)
    assert seen.ms("admit_ns")[1] == at_ms
    assert waits(seen, 1) == ({} if at_ms == 1.0 else {"swa": 29_000_000})


@pytest.mark.parametrize("prompt", [2000, 6000])
def test_a_chunk_that_could_never_fit_the_window_pool_is_cut_to_what_fits(watch: Watch, prompt: int) -> None:
    """Chunk 4096 in a window pool of 2048: (chunk − 128) + 128 + 256 < 2048 leaves 1536 in whole pages."""
    sets = [*SGLANG, "engine.chunked_prefill_tokens=4096"]
    seen = watch([call("a", prompt, 3)], sets=sets, swa_tokens=2048)
    assert seen.by_row("done") == ["completed"]
    first = seen.work()[0]
    assert first == (0, 1536)
    assert sum(tokens for _, tokens in seen.work()) == prompt


def test_a_shortage_that_will_pass_is_waited_for_without_a_smaller_chunk(watch: Watch) -> None:
    """b could have 768 tokens of window at once; it waits for its 1024 instead of eating a's window."""
    rows = [call("a", 100, 30), call("b", 1024, 2, at_ms=0.5)]
    seen = watch(rows, sets=SGLANG, swa_tokens=1536)
    assert seen.ms("admit_ns")[1] == 30.0
    assert seen.work()[30] == (0, 1024)


def test_a_prompt_in_progress_is_parked_while_others_hold_the_windows(watch: Watch) -> None:
    """b's second chunk needs 1024 tokens of window and 768 could be free: a decodes on until it ends."""
    rows = [call("a", 100, 30), call("b", 3000, 2, at_ms=0.5)]
    seen = watch(rows, sets=[*SGLANG, "engine.chunked_prefill_tokens=1024"], swa_tokens=2048)
    assert seen.work()[:2] == [(0, 100), (0, 1024)]
    assert seen.work()[2:31] == [(1, 0)] * 29
    assert seen.work()[31:] == [(0, 1024), (0, 952), (1, 0)]


def test_a_running_call_protects_one_page_of_the_window_that_its_prompt_left(watch: Watch) -> None:
    """a's prompt left 2048 tokens of window in the tree; 1792 of them give way to b (peak 2304 < 3328)."""
    rows = [call("a", 2048, 100), call("b", 2048, 2, at_ms=5)]
    seen = watch(rows, sets=SGLANG, swa_tokens=4096)
    assert seen.ms("admit_ns")[1] == 5.0


# -- nobody waits for what cannot be --------------------------------------------------------------


@pytest.mark.parametrize("sets", ENGINES)
def test_a_prompt_above_the_pool_is_rejected_at_once_and_nobody_waits_behind_it(
    watch: Watch, sets: list[str]
) -> None:
    rows = [
        call("a", 100, 20),
        call("big", 40 * PAGE, at_ms=2.5, max_output_tokens=100),
        call("b", 100, 2, at_ms=2.6, max_output_tokens=100),
        CallRow(session_id="big", turn=1, prompt_tokens=10, output_tokens=1, max_output_tokens=100),
    ]
    seen = watch(rows, sets=sets, kv_tokens=40 * PAGE)
    assert seen.by_row("done") == ["completed", "rejected", "completed", "completed"]
    assert seen.ms("admit_ns")[2] == 3.0
    # Its session goes on.
    assert seen.ms("sent_ns")[3] == 2.5
    assert seen.by_row("admit_ns")[1] == -1


@pytest.mark.parametrize(("prompt", "done"), [(4 * PAGE - 1, "completed"), (4 * PAGE, "rejected")])
def test_the_largest_prompt_leaves_room_for_one_token(watch: Watch, prompt: int, done: str) -> None:
    seen = watch([call("a", prompt, 1)], sets=VLLM, kv_tokens=4 * PAGE)
    assert seen.by_row("done") == [done]


# -- reasons --------------------------------------------------------------------------------------


def test_each_wait_has_its_reason_and_they_add_up(watch: Watch) -> None:
    rows = [call("a", 900, 30), call("b", 300, 5, at_ms=0.5), call("c", 10, 5, at_ms=40)]
    slots = watch(rows, sets=VLLM, slots=1)
    assert waits(slots, 1) == {"slots": 29_000_000}
    kv = watch(rows, sets=VLLM, kv_tokens=5 * PAGE)
    assert waits(kv, 1) == {"kv": 29_000_000}
    budget = watch(rows, sets=[*VLLM, "engine.max_batched_tokens=600"])
    assert waits(budget, 1) == {}
    for seen in (slots, kv, budget):
        for row in range(3):
            total = seen.by_row("wait_queue_ns")[row] + sum(waits(seen, row).values())
            assert total == seen.by_row("admit_ns")[row] - seen.by_row("queued_ns")[row]
        blocked = seen.result.blocked
        for reason in WAITS:
            calls = [row for row in range(3) if reason in waits(seen, row)]
            assert blocked.get(reason, (0, 0)) == (
                len(calls),
                sum(waits(seen, row)[reason] for row in calls),
            )


# -- priorities -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sets", ENGINES)
def test_the_urgent_come_first_and_equals_in_order_of_arrival(watch: Watch, sets: list[str]) -> None:
    rows = [
        call("plug", 10, 20),
        call("a", 10, 3, at_ms=1.1),
        call("b", 10, 3, at_ms=1.2, priority=5),
        call("c", 10, 3, at_ms=1.3, priority=5),
        call("d", 10, 3, at_ms=1.4, priority=9),
    ]
    seen = watch(rows, sets=sets, slots=1)
    assert [row for _, row in seen.admits] == [0, 4, 2, 3, 1]


@pytest.mark.parametrize("sets", ENGINES)
def test_without_priorities_the_queue_is_first_come_first_served(watch: Watch, sets: list[str]) -> None:
    rows = [call("plug", 10, 20)] + [call(f"s{i}", 10 * (9 - i), 3, at_ms=1 + i / 10) for i in range(5)]
    seen = watch(rows, sets=sets, slots=1)
    assert [row for _, row in seen.admits] == [0, 1, 2, 3, 4, 5]
