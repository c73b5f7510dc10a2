"""Law 4 under cache keys: it holds whatever the order of events, and it catches a hit across keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v4sim.workload import WorkloadOptions
from v4traces import CallRow

PAGE = 256
SNAPSHOT = "cache.identity=['snapshot_id']"


def forest(plan: list[tuple[int, int, str | None]]) -> list[CallRow]:
    """Calls of sessions of their own, each extending an earlier one by some pages under some snapshot."""
    rows: list[CallRow] = []
    for number, (base, pages, key) in enumerate(plan):
        parent = rows[base % number] if number and base >= 0 else None
        shared = min(parent.prompt_tokens, PAGE * pages) if parent is not None else 0
        rows.append(
            CallRow(
                session_id=f"s{number}",
                turn=0,
                parent_session=parent.session_id if parent is not None else None,
                parent_turn=0 if parent is not None else None,
                shared_tokens=shared,
                group_id="g" if parent is None else None,
                group_tokens=300 if parent is None else None,
                prompt_tokens=shared + 600 + 17 * number,
                output_tokens=4 + number,
                snapshot_id=key,
            )
        )
    return rows


PLANS = st.lists(
    st.tuples(st.integers(-1, 15), st.integers(1, 8), st.sampled_from(["a", "b", None])),
    min_size=3,
    max_size=14,
)


@settings(max_examples=40)
@given(PLANS, st.integers(1, 4), st.sampled_from([1 << 20, 8192]), st.integers(1, 2))
def test_laws_hold_with_keys(
    simulate_rows: Callable[..., Any],
    plan: list[tuple[int, int, str | None]],
    sessions: int,
    kv: int,
    copies: int,
) -> None:
    if not any(key for _, _, key in plan):
        return
    workload = WorkloadOptions(sessions=sessions, copies=copies)
    world = simulate_rows(forest(plan), sets=[SNAPSHOT], kv_tokens=kv, workload=workload)
    assert world.broken() == []


def test_a_hit_across_keys_is_caught(simulate_rows: Callable[..., Any]) -> None:
    plan = [(-1, 0, "a"), (0, 2, "b"), (0, 2, "b")]
    world = simulate_rows(forest(plan), sets=[SNAPSHOT], workload=WorkloadOptions(sessions=1))
    hits, rows = world.result.calls["hit_tokens"].tolist(), world.result.calls["row"].tolist()
    assert world.broken() == []
    call = rows.index(1)
    computed = int(world.result.calls["computed_tokens"][call])
    # Row 1 may have 512 tokens from row 2, of its key, but never the 768 that no call of its key has.
    broken = world.with_calls(call, hit_tokens=768, computed_tokens=computed + hits[call] - 768)
    assert "4 hits" in broken.laws()


def test_a_bound_of_tokens_alone_is_caught(simulate_rows: Callable[..., Any]) -> None:
    plan = [(-1, 0, "a"), (0, 2, "b")]
    world = simulate_rows(forest(plan), sets=[SNAPSHOT], workload=WorkloadOptions(sessions=1))
    assert world.result.calls["bound_tokens"].tolist() == [0, 0]
    assert "4 hits" in world.with_calls(1, bound_tokens=512).laws()


@pytest.mark.parametrize(("sets", "served"), [([], 512), ([SNAPSHOT], 0)])
def test_stale_tokens_are_counted_and_served_as_the_policy_says(
    simulate_rows: Callable[..., Any], sets: list[str], served: int
) -> None:
    from v4sim.metrics import summarise

    world = simulate_rows(
        forest([(-1, 0, "a"), (0, 2, "b")]),
        sets=[
            "router.policy=sticky",
            "parallel.attention_dp=1",
            "parallel.attention_tp=4",
            "parallel.ep=1",
            *sets,
        ],
        workload=WorkloadOptions(sessions=1),
    )
    hit = summarise(world.result, world.table, world.deployment).tree["full"]["hit"]
    assert hit["stale_tokens"] == 512
    assert hit["stale_served_tokens"] == served


@settings(max_examples=30)
@given(PLANS, st.sampled_from([1 << 20, 8192]), st.sampled_from(["sglang", "vllm"]))
def test_keys_leave_segments_and_single_steps_alike(
    simulate_rows: Callable[..., Any], plan: list[tuple[int, int, str | None]], kv: int, engine: str
) -> None:
    if not any(key for _, _, key in plan):
        return
    options = {"sets": [SNAPSHOT, f"engine.kind={engine}"], "kv_tokens": kv}
    segments, single = (
        simulate_rows(forest(plan), workload=WorkloadOptions(sessions=3), stepwise=stepwise, **options)
        for stepwise in (False, True)
    )
    for name, column in segments.result.calls.items():
        assert list(column) == list(single.result.calls[name]), name
