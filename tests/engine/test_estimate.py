"""SGLang admits by estimate: what it holds back for announced output, and that it knows nothing more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v4traces import CallRow

Watch = Callable[..., Any]
INITIAL, FLOOR, DECAY = 0.7, 0.098, (0.7 - 0.098) / 600


def call(name: str, prompt: int, output: int, at_ms: float = 0.0, **more: Any) -> CallRow:
    return CallRow(
        session_id=name, turn=0, prompt_tokens=prompt, output_tokens=output, arrival_s=at_ms / 1e3, **more
    )


def admitted_after(pool: int, announced: int) -> int:
    """Decode steps of a 256-token call with 4096 announced, until one with `announced` has room.

    total = extend + announced + page < free + evictable − ratio · remaining.
    """
    steps = 0
    while True:
        generated = 1 + steps
        held = -(-(256 + steps) // 256) * 256  # as allocated for the step before; the prefill holds a page
        ratio = max(FLOOR, INITIAL - DECAY * steps)
        if 256 + announced + 256 < pool - held - ratio * (4096 - generated):
            return steps
        steps += 1


@pytest.mark.parametrize("announced", [1000, 2600, 3000, 4000])
def test_a_newcomer_waits_until_the_estimate_has_relaxed(watch: Watch, announced: int) -> None:
    pool = 6144
    rows = [
        call("a", 256, 900, max_output_tokens=4096),
        call("b", 256, 5, at_ms=0.5, max_output_tokens=announced),
    ]
    seen = watch(rows, sets=["engine.overlap=false"], kv_tokens=pool)
    # The prefill takes the first step; b is first considered after it.
    expected = min(1.0 + admitted_after(pool, announced), 900.0)
    assert seen.ms("admit_ns")[1] == expected
    assert seen.by_row("wait_kv_ns")[1] == (expected - 1) * 1e6
    assert expected > 1 or announced == 1000


def test_more_caution_admits_later(watch: Watch) -> None:
    rows = [
        call("a", 256, 900, max_output_tokens=4096),
        call("b", 256, 5, at_ms=0.5, max_output_tokens=2600),
    ]
    at = []
    for factor in ("0", "0.5", "1.0", "1.4"):
        sets = ["engine.overlap=false", f"engine.conservativeness={factor}"]
        at.append(watch(rows, sets=sets, kv_tokens=6144).ms("admit_ns")[1])
    assert at == sorted(at)
    assert at[0] == 1.0
    assert at[0] < at[2] < at[3]


def test_an_announcement_above_the_clip_counts_as_the_clip(watch: Watch) -> None:
    rows = [call("a", 256, 5, max_output_tokens=1_000_000)]
    for clip, pool, done in ((4096, 4864, "completed"), (4096, 4608, "rejected"), (512, 1280, "completed")):
        seen = watch(rows, sets=[f"engine.clip_max_new_tokens={clip}"], kv_tokens=pool)
        assert seen.by_row("done") == [done], (clip, pool)


def test_a_call_without_a_limit_announces_the_engines_default(watch: Watch) -> None:
    rows = [call("a", 256, 5)]
    for default, done in ((4096, "rejected"), (256, "completed")):
        seen = watch(rows, sets=[f"engine.default_max_new_tokens={default}"], kv_tokens=4608)
        assert seen.by_row("done") == [done]


@st.composite
def crowds(draw: st.DrawFn) -> list[CallRow]:
    """Calls whose limits are given, so that the true length is no part of what was announced."""
    rows = []
    for number, half_ms in enumerate(sorted(draw(st.lists(st.integers(0, 60), min_size=2, max_size=6)))):
        output = draw(st.integers(1, 120))
        rows.append(
            call(
                f"s{number}",
                draw(st.integers(1, 1500)),
                output,
                at_ms=half_ms / 2 if number else 0.0,
                max_output_tokens=draw(st.sampled_from([400, 900])),
            )
        )
    return rows


WORLDS = [
    ["engine.overlap=true", "engine.chunked_prefill_tokens=512"],
    ["engine.overlap=false", "engine.conservativeness=0.1"],
    ["engine.schedule_policy=lpm", "engine.prefill_decode_interval=1"],
    ["engine.kind=vllm"],
    ["engine.kind=vllm", "engine.async_scheduling=false", "engine.max_batched_tokens=512"],
    ["speculation.kind=mtp", "speculation.draft_tokens=2"],
]


@settings(max_examples=40)
@given(
    rows=crowds(),
    sets=st.sampled_from(WORLDS),
    data=st.data(),
    more=st.integers(1, 280),
    kv_tokens=st.sampled_from([3072, 1 << 20]),
)
def test_no_decision_depends_on_how_long_an_answer_will_be(
    watch: Watch, rows: list[CallRow], sets: list[str], data: st.DataObject, more: int, kv_tokens: int
) -> None:
    """Law 8. A longer answer changes nothing until the moment at which the shorter one ended."""
    from dataclasses import replace

    chosen = data.draw(st.integers(0, len(rows) - 1))
    longer = list(rows)
    longer[chosen] = replace(rows[chosen], output_tokens=rows[chosen].output_tokens + more)
    before = watch(rows, sets=sets, kv_tokens=kv_tokens)
    after = watch(longer, sets=sets, kv_tokens=kv_tokens)
    end = before.ms("last_token_ns")[chosen]
    if before.by_row("done")[chosen] != "completed":
        end = float("inf")
    assert [s for s in after.steps if s.end_ms <= end] == [s for s in before.steps if s.end_ms <= end]
    assert [a for a in after.admits if a[0] < end] == [a for a in before.admits if a[0] < end]
