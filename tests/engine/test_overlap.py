"""When an arrival is seen and a finish is known, with and without overlap. Steps of 1 ms, by hand.

The rule (SGLang's overlap, vLLM's async scheduling): the batch of step i + 1 is chosen when step i
starts. So an arrival during step i waits for the rest of it and for all of step i + 1, and a call whose
last token came in step i is still a row of step i + 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from v4traces import CallRow

Watch = Callable[..., Any]
SGLANG = {True: "engine.overlap=true", False: "engine.overlap=false"}
VLLM = {True: "engine.async_scheduling=true", False: "engine.async_scheduling=false"}
ENGINES = [
    pytest.param(lambda late: [SGLANG[late]], id="sglang"),
    pytest.param(lambda late: ["engine.kind=vllm", VLLM[late]], id="vllm"),
]


def call(name: str, prompt: int, output: int = 1, at_ms: float = 0.0, **more: Any) -> CallRow:
    return CallRow(
        session_id=name, turn=0, prompt_tokens=prompt, output_tokens=output, arrival_s=at_ms / 1e3, **more
    )


@pytest.mark.parametrize("sets", ENGINES)
@pytest.mark.parametrize(
    ("at_ms", "without", "with_overlap"),
    [
        (2.25, 3, 4),
        (2.999999, 3, 4),
        # At the very end of a step: in time for the next batch only if that is chosen now.
        (3.0, 3, 4),
        (3.000001, 4, 5),
    ],
)
def test_an_arrival_waits_for_the_residual_step_and_with_overlap_one_more(
    watch: Watch, sets: Any, at_ms: float, without: int, with_overlap: int
) -> None:
    rows = [call("a", 10, 30), call("b", 10, at_ms=at_ms)]
    for late, expected in ((False, without), (True, with_overlap)):
        seen = watch(rows, sets=sets(late))
        assert seen.ms("queued_ns")[1] == at_ms
        assert seen.ms("admit_ns")[1] == expected
        assert seen.ms("first_token_ns")[1] == expected + 1


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("sets", ENGINES)
def test_an_idle_engine_starts_at_once(watch: Watch, sets: Any, late: bool) -> None:
    seen = watch([call("a", 10, 2), call("b", 10, at_ms=50.5)], sets=sets(late))
    assert seen.ms("admit_ns") == [0.0, 50.5]
    assert seen.ms("first_token_ns") == [1.0, 51.5]


@pytest.mark.parametrize("sets", ENGINES)
def test_a_finish_is_known_one_step_late(watch: Watch, sets: Any) -> None:
    """Three tokens: prefill, two decodes, and with late results one row whose token is dropped."""
    for late, rows in ((False, 2), (True, 3)):
        seen = watch([call("a", 10, 3)], sets=sets(late))
        assert seen.ms("last_token_ns") == [3.0]
        assert seen.work() == [(0, 10)] + [(1, 0)] * rows


@pytest.mark.parametrize("sets", ENGINES)
def test_a_slot_is_free_after_the_late_row(watch: Watch, sets: Any) -> None:
    rows = [call("a", 10, 3), call("b", 10, 1)]
    for late, admitted in ((False, 3.0), (True, 4.0)):
        seen = watch(rows, sets=sets(late), slots=1)
        assert seen.ms("admit_ns") == [0.0, admitted]


@pytest.mark.parametrize("late", [True, False])
def test_tokens_themselves_are_not_delayed(watch: Watch, late: bool) -> None:
    """A client sees each token when its step ends, so alone nobody is slower for the overlap."""
    seen = watch([call("a", 10, 20)], sets=[SGLANG[late]])
    assert (seen.ms("first_token_ns"), seen.ms("last_token_ns")) == ([1.0], [20.0])


def test_a_follow_up_without_delay_arrives_as_its_parent_ends_and_finds_its_pages(watch: Watch) -> None:
    rows = [
        call("a", 1000, 100),
        CallRow(
            session_id="a",
            turn=1,
            parent_session="a",
            parent_turn=0,
            shared_tokens=1000,
            shared_output_tokens=100,
            prompt_tokens=1200,
            output_tokens=1,
        ),
    ]
    for late, admitted in ((False, 100.0), (True, 101.0)):
        seen = watch(rows, sets=[SGLANG[late]])
        assert seen.ms("queued_ns")[1] == 100.0
        assert seen.ms("admit_ns")[1] == admitted
        assert seen.by_row("hit_tokens") == [0, 1024]


def test_a_late_row_costs_a_whole_verify_window(simulate_rows: Callable[..., Any]) -> None:
    """One row of width 4 in a step of its own; the result is dropped but the step is paid."""

    class Widths:
        def __init__(self) -> None:
            self.seen: list[tuple[int, int]] = []

        def step(self, loads: Any, width: int, kind: str) -> list[int]:
            from v4sim.cost.base import PARTS

            self.seen.append((loads[0].rows, width if loads[0].rows else 0))
            return [1_000_000] + [0] * (len(PARTS) - 1)

    cost = Widths()
    speculation = [
        "speculation.kind=mtp",
        "speculation.draft_tokens=3",
        "speculation.acceptance=constant:1.0",
    ]
    result = simulate_rows([call("a", 10, 9)], sets=speculation, cost=cost, stepwise=True)
    assert result.calls["last_token_ns"].tolist() == [3_000_000]
    assert cost.seen == [(0, 0), (1, 4), (1, 4), (1, 4)]


def test_vllm_wastes_nothing_on_an_answer_that_ends_at_its_limit(watch: Watch) -> None:
    """Async scheduling does not schedule a step that would exceed max_tokens; only an EOS comes late."""
    sets = ["engine.kind=vllm", VLLM[True]]
    at_limit = watch([call("a", 10, 3, max_output_tokens=3)], sets=sets)
    assert at_limit.work() == [(0, 10), (1, 0), (1, 0)]
    by_eos = watch([call("a", 10, 3, max_output_tokens=4)], sets=sets)
    assert by_eos.work() == [(0, 10), (1, 0), (1, 0), (1, 0)]
    # With drafts the last step may have reached the limit by luck, which nobody could know in time.
    lucky = ["speculation.kind=mtp", "speculation.draft_tokens=1", "speculation.acceptance=constant:1.0"]
    for output, rows in ((3, 2), (4, 2)):
        seen = watch([call("a", 10, output, max_output_tokens=output)], sets=[*sets, *lucky])
        assert seen.work() == [(0, 10)] + [(1, 0)] * rows
    # SGLang foresees a limit likewise (0.5.23) and learns of an EOS one step late.
    sglang = watch([call("a", 10, 3, max_output_tokens=3)], sets=[SGLANG[True]])
    assert sglang.work() == [(0, 10), (1, 0), (1, 0)]
    sglang = watch([call("a", 10, 3, max_output_tokens=4)], sets=[SGLANG[True]])
    assert sglang.work() == [(0, 10), (1, 0), (1, 0), (1, 0)]
