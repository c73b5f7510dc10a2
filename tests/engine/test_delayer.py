"""SGLang's prefill delayer: ranks that could prefill wait for each other, for a while. Steps of 1 ms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from v4traces import CallRow

Watch = Callable[..., Any]


def call(name: str, prompt: int, output: int = 1, at_ms: float = 0.0) -> CallRow:
    return CallRow(session_id=name, turn=0, prompt_tokens=prompt, output_tokens=output, arrival_s=at_ms / 1e3)


def delayer(passes: int, *more: str) -> list[str]:
    return [
        "engine.overlap=false",
        "engine.prefill_delayer=true",
        f"engine.prefill_delayer_max_passes={passes}",
        *more,
    ]


# Both ranks decode when a call comes to rank 0 (round robin: a, c to rank 0, b, d to rank 1).
DECODING = [call("a", 10, 40), call("b", 10, 40)]


@pytest.mark.parametrize("passes", [1, 3, 10])
def test_a_rank_that_alone_could_prefill_waits_for_as_many_passes_as_allowed(
    watch: Watch, passes: int
) -> None:
    rows = [*DECODING, call("c", 100, 2, at_ms=4.5)]
    seen = watch(rows, sets=delayer(passes), dp=2)
    assert seen.ms("admit_ns")[2] == 5.0 + passes
    assert watch(rows, sets=["engine.overlap=false"], dp=2).ms("admit_ns")[2] == 5.0


def test_as_soon_as_all_could_prefill_they_do_so_in_one_step(watch: Watch) -> None:
    rows = [*DECODING, call("c", 100, 2, at_ms=4.5), call("d", 200, 2, at_ms=7.5)]
    seen = watch(rows, sets=delayer(30), dp=2)
    assert seen.ms("admit_ns")[2:] == [8.0, 8.0]
    together = next(step for step in seen.steps if step.start_ms == 8.0)
    assert together.work == [(0, 100), (0, 200)]
    prefills = [step for step in seen.steps if step.kind != "decode"]
    assert len(prefills) == 2
    without = watch(rows, sets=["engine.overlap=false"], dp=2)
    assert len([step for step in without.steps if step.kind != "decode"]) == 3


def test_a_prompt_in_progress_goes_on_while_newcomers_are_held_back(watch: Watch) -> None:
    rows = [call("a", 3 * 1024, 5), call("b", 10, 40), call("c", 100, 2, at_ms=0.5)]
    sets = delayer(20, "engine.chunked_prefill_tokens=2048", "engine.max_running=8")
    seen = watch(rows, sets=sets, dp=2)
    assert [step.work[0][1] for step in seen.steps[:3]] == [1024, 1024, 1024]


def test_an_otherwise_idle_engine_is_not_kept_waiting(watch: Watch) -> None:
    """Passes in which nothing runs take no time, so a lone call starts at once."""
    seen = watch([call("a", 10, 3)], sets=delayer(30), dp=2)
    assert seen.ms("first_token_ns") == [1.0]


def test_the_verdict_starts_afresh_after_every_prefill(watch: Watch) -> None:
    rows = [
        *DECODING,
        call("c", 10, 2, at_ms=4.5),
        call("e", 10, 30, at_ms=12.5),
        call("f", 10, 2, at_ms=20.5),
    ]
    seen = watch(rows, sets=delayer(3), dp=2)
    # Each waits its own three passes: none inherits the patience that another has used up.
    assert [seen.ms("admit_ns")[row] - seen.ms("queued_ns")[row] for row in (2, 3, 4)] == [3.5] * 3
