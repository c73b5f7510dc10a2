"""Each law holds on a real run and finds the run that breaks it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from v4traces import CallRef, CallRow

ROWS = [
    CallRow(
        session_id="a",
        turn=0,
        prompt_tokens=1500,
        output_tokens=40,
        arrival_s=0.0,
        group_id="g",
        group_tokens=512,
    ),
    CallRow(
        session_id="b",
        turn=0,
        prompt_tokens=900,
        output_tokens=60,
        arrival_s=0.5,
        group_id="g",
        group_tokens=600,
    ),
    CallRow(
        session_id="a",
        turn=1,
        parent_session="a",
        parent_turn=0,
        shared_tokens=1500,
        shared_output_tokens=40,
        prompt_tokens=2100,
        output_tokens=30,
        delay_s=2.0,
        trigger="tool_result",
    ),
    CallRow(
        session_id="sub",
        turn=0,
        prompt_tokens=700,
        output_tokens=20,
        trigger="subagent",
        after=(CallRef("a", 1),),
        delay_s=0.25,
    ),
    CallRow(
        session_id="a",
        turn=2,
        parent_session="a",
        parent_turn=1,
        shared_tokens=2100,
        prompt_tokens=2500,
        output_tokens=1,
        after=(CallRef("a", 1), CallRef("sub", 0)),
        delay_s=0.5,
    ),
]


@pytest.fixture(scope="module")
def world(simulate_rows):
    return simulate_rows(ROWS, sets=["router.policy=sticky"])


@pytest.fixture(scope="module")
def drafting(simulate_rows):
    sets = ["router.policy=sticky", "speculation.kind=mtp", "speculation.draft_tokens=2"]
    return simulate_rows(ROWS, sets=sets)


@pytest.fixture(scope="module")
def warm(world):
    """The call that extends another and hits."""
    (index,) = np.flatnonzero(world.result.calls["row"] == 2)
    assert world.result.calls["hit_tokens"][index] == 1536
    return int(index)


def test_all_laws_hold_on_the_runs_that_are_broken_below(world, drafting):
    assert world.broken() == []
    assert drafting.broken() == []


def test_a_finding_names_law_and_call(world):
    (finding,) = world.with_calls(1, computed_tokens=10_000).broken()[:1]
    assert finding.message.startswith("law 5 tiers: call 1: row 1 (session 'b', turn 0): hit_tokens ")
    assert (finding.row, finding.count, finding.severity) == (1, 1, "error")


@pytest.mark.parametrize(
    ("law", "columns"),
    [
        ("1 conservation", {"done": "lost"}),
        ("1 conservation", {"done": "queued"}),
        ("1 conservation", {"done": "running"}),
        ("1 conservation", {"done": "rejected"}),
        ("1 conservation", {"last_token_ns": -1}),
        ("1 conservation", {"admit_ns": -1}),
        ("1 conservation", {"row": 0}),
        ("2 clocks", {"sent_ns": 5_000_000_000}),
        ("2 clocks", {"ready_ns": 0}),
        ("2 clocks", {"queued_ns": 1}),
        ("2 clocks", {"first_token_ns": 1}),
        ("2 clocks", {"first_seen_ns": 1}),
        ("2 clocks", {"last_token_ns": 10**15}),
        ("3 pools", {"kv_peak_tokens": 1 << 21}),
        ("4 hits", {"hit_tokens": 2048, "computed_tokens": 52}),
        ("4 hits", {"hit_tokens": 1000, "computed_tokens": 1100}),
        ("4 hits", {"hit_tokens": 0, "hit_host_tokens": 2304, "computed_tokens": -204}),
        ("4 hits", {"bound_tokens": 7}),
        ("5 tiers", {"computed_tokens": 563}),
        ("5 tiers", {"hit_storage_tokens": 1}),
        ("5 tiers", {"recomputed_tokens": -1}),
        ("6 parts", {"gpu_share_ns": 10**12}),
        ("6 parts", {"gpu_share_ns": -1}),
        ("7 work", {"recomputed_tokens": 4}),
        ("7 work", {"wait_kv_ns": 1_000}),
        ("7 work", {"wait_queue_ns": -1}),
        ("8 inter-token", {"output_tokens": 31}),
        ("10 speculation", {"drafts_accepted": 1}),
        ("10 speculation", {"verify_steps": 5}),
    ],
)
def test_a_call_that_breaks_a_law_is_found(world, warm, law, columns):
    broken = world.with_calls(warm, **columns)
    assert law in broken.laws()


def test_the_call_that_is_wrong_is_the_one_that_is_named(world, warm):
    """Every per-call law points at the call that was changed, not at a neighbour."""
    for columns in ({"computed_tokens": 5}, {"hit_tokens": 1000}, {"gpu_share_ns": -1}, {"done": "lost"}):
        assert warm in {finding.row for finding in world.with_calls(warm, **columns).broken()}, columns


def test_hits_of_a_call_that_nothing_came_before(world):
    """The first root of a group shares it with the other; a call that shares with nobody cannot hit."""
    calls = world.result.calls
    (alone,) = np.flatnonzero(calls["row"] == 3)
    prompt = int(calls["prompt_tokens"][alone])
    broken = world.with_calls(alone, hit_tokens=256, computed_tokens=prompt - 256)
    assert "4 hits" in broken.laws()
    # 512 tokens are common to both roots: two pages are possible, three are not.
    for root in (0, 1):
        prompt = int(calls["prompt_tokens"][root])
        assert "4 hits" not in world.with_calls(root, hit_tokens=512, computed_tokens=prompt - 512).laws()
        assert "4 hits" in world.with_calls(root, hit_tokens=768, computed_tokens=prompt - 768).laws()


def test_a_call_that_does_not_wait_for_all_it_depends_on(world):
    calls = world.result.calls
    last = int(np.flatnonzero(calls["row"] == 4)[0])
    other = int(np.flatnonzero(calls["row"] == 2)[0])
    early = int(calls["last_token_ns"][other])
    broken = world.with_calls(last, ready_ns=early, sent_ns=early + 500_000_000)
    messages = [finding.message for finding in broken.broken() if finding.law == "2 clocks"]
    assert any("the calls that it waits for ended at" in message for message in messages)


def test_a_call_that_is_ready_later_than_it_could_be(world, warm):
    calls = world.result.calls
    later = {name: int(calls[name][warm]) + 1_000 for name in ("ready_ns", "sent_ns")}
    messages = [finding.message for finding in world.with_calls(warm, **later).broken()]
    assert any("the calls that it waits for ended at" in message for message in messages)


def test_a_call_sent_although_another_did_not_complete(world):
    calls = world.result.calls
    sub = int(np.flatnonzero(calls["row"] == 3)[0])
    broken = world.with_calls(sub, done="running", last_token_ns=-1)
    messages = [finding.message for finding in broken.broken()]
    assert any("did not end" in message for message in messages)


@pytest.mark.parametrize(
    "change", [{"peak": 2_000_000}, {"used_at_end": 2_000_000}, {"used_at_end": 5}, {"peak": 0}]
)
def test_a_pool_that_overflows_or_leaks_is_found(world, change):
    pools = [replace(pool, **change) if i == 0 else pool for i, pool in enumerate(world.result.pools)]
    (finding, *_) = world.with_fields(pools=pools).broken()
    assert finding.law == "3 pools"
    assert "'kv' of replica 0, rank 0" in finding.message


def test_time_that_belongs_to_no_part_is_found(world):
    broken = world.copied()
    broken.result.steps.parts_ns["decode"][3] += 1
    assert broken.laws() == {"6 parts"}
    broken = world.copied()
    broken.result.steps.counts["decode"] += 1
    assert broken.laws() == {"6 parts"}


def test_steps_that_took_longer_than_the_clock_are_found(world):
    assert "6 parts" in world.with_fields(stepped_ns=world.result.stepped_ns + 1).laws()


def test_ranks_that_do_not_share_the_clock_are_found(world):
    broken = world.copied()
    broken.result.ranks[1].idle_ns += 1
    assert broken.laws() == {"7 work"}


def test_prompt_tokens_computed_for_nobody_are_found(world):
    broken = world.copied()
    broken.result.ranks[0].prefill_tokens += 1
    assert broken.laws() == {"7 work"}


@pytest.mark.parametrize("form", ["itl_burst", "itl_divided"])
def test_gaps_that_do_not_sum_to_the_time_between_tokens_are_found(world, form):
    broken = world.copied()
    getattr(broken.result, form).add(np.array([5]))
    assert broken.laws() == {"8 inter-token"}


def test_queues_that_do_not_match_the_calls_are_found(world):
    series = {name: column.copy() for name, column in world.result.series.items()}
    busiest = int(series["running"].sum(axis=1).argmax())
    series["running"][busiest, 0] += 5
    assert "1 conservation" in world.with_fields(series=series).laws()


def test_queues_that_hold_calls_too_long_break_littles_law(world):
    series = {name: column.copy() for name, column in world.result.series.items()}
    series["queued"] = series["queued"] + 1
    assert "9 Little's law" in world.with_fields(series=series).laws()


def test_drafts_beyond_what_was_offered_are_found(drafting):
    calls = drafting.result.calls
    steps = int(calls["verify_steps"][1])
    assert "10 speculation" in drafting.with_calls(1, drafts_accepted=2 * steps + 1).laws()
    assert "10 speculation" in drafting.with_calls(1, verify_steps=10).laws()
    assert "10 speculation" in drafting.with_calls(1, drafts_offered=3 * steps).laws()
    phase = next(iter(drafting.result.acceptance))
    assert drafting.with_fields(acceptance={phase: ([3, 2], [4, 0])}).laws() == {"10 speculation"}


def test_a_run_without_calls_breaks_nothing(world):
    empty = {name: column[:0] for name, column in world.result.calls.items()}
    assert world.with_fields(calls=empty).broken() == []
