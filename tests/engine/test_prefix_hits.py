"""What a call may reuse of what came before, to the token. Pages of 256; steps of 1 ms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4traces import CallRow

Watch = Callable[..., Any]
# Which pages are hit; that vLLM 0.33 keeps few windows is a matter of its own.
VLLM = ["engine.kind=vllm", "engine.window_retention=all"]
ENGINES = [
    pytest.param(["engine.overlap=false"], id="sglang"),
    pytest.param([*VLLM, "engine.async_scheduling=false"], id="vllm"),
]


def root(name: str, prompt: int, output: int = 1, at_ms: float = 0.0, group: int = 0) -> CallRow:
    return CallRow(
        session_id=name,
        turn=0,
        group_id="g" if group else None,
        group_tokens=group or None,
        prompt_tokens=prompt,
        output_tokens=output,
        arrival_s=at_ms / 1e3,
    )


def child(
    name: str, of: str, shared: int, prompt: int, output: int = 1, *, turn: int = 0, **more: Any
) -> CallRow:
    at_ms = more.pop("at_ms", None)
    return CallRow(
        session_id=name,
        turn=turn,
        parent_session=of,
        parent_turn=more.pop("parent_turn", 0),
        shared_tokens=shared,
        prompt_tokens=prompt,
        output_tokens=output,
        arrival_s=None if at_ms is None else at_ms / 1e3,
        **more,
    )


@pytest.mark.parametrize("sets", ENGINES)
@pytest.mark.parametrize(
    ("shared", "prompt", "hit"),
    [
        (1024, 1024, 768),  # the last token is always computed
        (1024, 1025, 1024),
        (1024, 3000, 1024),
        (1023, 3000, 768),  # whole pages only
        (255, 3000, 0),
        (1, 3000, 0),
    ],
)
def test_a_hit_is_whole_pages_of_what_is_shared_and_never_the_last_token(
    watch: Watch, sets: list[str], shared: int, prompt: int, hit: int
) -> None:
    rows = [root("a", 1024), child("b", "a", shared, prompt, at_ms=100)]
    seen = watch(rows, sets=sets)
    assert seen.by_row("hit_tokens") == [0, hit]
    assert seen.by_row("computed_tokens") == [1024, prompt - hit]


@given(prompt=st.integers(1, 2000), more=st.integers(0, 600))
def test_a_resume_at_the_end_of_a_prompt_hits_floor_of_l_minus_one(
    simulate_rows: Callable[..., Any], prompt: int, more: int
) -> None:
    rows = [root("a", prompt), child("b", "a", prompt, prompt + more, at_ms=100)]
    calls = simulate_rows(rows).calls
    assert calls["hit_tokens"][1] == min(prompt // 256, (prompt + more - 1) // 256) * 256


@pytest.mark.parametrize("sets", ENGINES)
def test_after_the_end_the_output_is_part_of_the_prefix(watch: Watch, sets: list[str]) -> None:
    """1000 + 600 tokens; the last one sampled has no KV, so 1599 are there: six pages."""
    rows = [
        root("a", 1000, 600),
        child("a", "a", 1000, 1700, turn=1, shared_output_tokens=600),
    ]
    assert watch(rows, sets=sets).by_row("hit_tokens") == [0, 1536]


@pytest.mark.parametrize(("output", "hit"), [(24, 768), (25, 1024)])
def test_the_last_sampled_token_has_no_kv(watch: Watch, output: int, hit: int) -> None:
    """1000 + 24 = 1024 tokens of content but 1023 of KV: a page less than with one token more.

    With overlap the step that nobody needed has computed it: a page is won.
    """
    rows = [root("a", 1000, output), child("a", "a", 1000, 1700, turn=1, shared_output_tokens=output)]
    assert watch(rows, sets=["engine.overlap=false"]).by_row("hit_tokens") == [0, hit]
    assert watch(rows).by_row("hit_tokens") == [0, 1024]


def test_output_may_be_left_out_of_the_cache(watch: Watch) -> None:
    """strip_output_cache: only the prompt's pages stay."""
    rows = [root("a", 1000, 600), child("a", "a", 1000, 1700, turn=1, shared_output_tokens=600)]
    assert watch(rows, sets=["engine.strip_output_cache=true"]).by_row("hit_tokens") == [0, 768]


def test_without_a_prefix_cache_nothing_is_reused(watch: Watch) -> None:
    rows = [root("a", 1000, 600), child("a", "a", 1000, 1700, turn=1, shared_output_tokens=600)]
    assert watch(rows, sets=["engine.prefix_cache=false"]).by_row("hit_tokens") == [0, 0]


@pytest.mark.parametrize("sets", ENGINES)
def test_a_fork_from_a_running_answer_misses_its_output_and_hits_its_prompt(
    watch: Watch, sets: list[str]
) -> None:
    """SGLang inserts nothing during decode. (vLLM would hash output blocks as they fill: left out.)"""
    rows = [root("a", 1000, 600), child("f", "a", 1000, 1800, shared_output_tokens=600, at_ms=550)]
    assert watch(rows, sets=sets).by_row("hit_tokens") == [0, 768]
    ended = [root("a", 1000, 600), child("f", "a", 1000, 1800, shared_output_tokens=600, at_ms=900)]
    assert watch(ended, sets=sets).by_row("hit_tokens") == [0, 1536]


def test_a_fork_from_the_middle_of_an_answer_is_legal_where_its_window_survives(watch: Watch) -> None:
    """SGLang frees the window behind a decode, so 1280 is a tombstone and the hit ends with the prompt.

    vLLM frees the same blocks but they stay hashed until they are reused.
    """
    rows = [root("a", 1000, 600), child("f", "a", 1000, 1500, shared_output_tokens=300, at_ms=900)]
    for sets, hit in ((["engine.overlap=false"], 768), (VLLM, 1280)):
        seen = watch(rows, sets=sets)
        assert seen.by_row("hit_tokens") == [0, hit]
        assert seen.by_row("lost_swa_tokens") == [0, 1280 - hit]


@pytest.mark.parametrize(
    ("speculation", "version", "shared", "hit"),
    [
        ("mtp", "0.29", 1100, 768),  # the last matched block is dropped
        ("mtp", "0.33", 1100, 1024),
        ("mtp", "0.33", 1024, 768),  # the token after the block is another one
        ("dspark", "0.33", 1024, 1024),
    ],
)
def test_what_draft_layers_cost_vllm_of_a_hit(
    watch: Watch, speculation: str, version: str, shared: int, hit: int
) -> None:
    rows = [root("a", 2000, 1), child("b", "a", shared, 3000, at_ms=100)]
    drafts = [f"speculation.kind={speculation}", "speculation.draft_tokens=1"]
    sets = [*VLLM, f"engine.version={version}", *drafts]
    assert watch(rows, sets=sets).by_row("hit_tokens") == [0, hit]


@pytest.mark.parametrize(("shared", "hit"), [(1024, 768), (1025, 1024), (256, 0)])
@pytest.mark.parametrize("kind", ["mtp", "dspark"])
def test_with_mtp_sglangs_keys_are_bigrams(watch: Watch, kind: str, shared: int, hit: int) -> None:
    """What is shared ends one token earlier, as far as a page can tell; DSpark has plain keys."""
    rows = [root("a", 2000, 1), child("b", "a", shared, 3000, at_ms=100)]
    drafts = 1 if kind == "mtp" else 5
    speculation = [f"speculation.kind={kind}", f"speculation.draft_tokens={drafts}"]
    expected = hit if kind == "mtp" else shared // 256 * 256
    assert watch(rows, sets=speculation).by_row("hit_tokens") == [0, expected]


def test_a_fork_from_a_prompt_in_chunks_hits_the_chunks_that_are_done(watch: Watch) -> None:
    """Each chunk is published when the next batch is chosen; the second chunk is being computed at 1.5 ms."""
    rows = [root("a", 3000, 1), child("f", "a", 3000, 3200, at_ms=1.5)]
    sets = ["engine.chunked_prefill_tokens=1024", "engine.overlap=false", "engine.max_running=8"]
    seen = watch(rows, sets=sets)
    # a's last chunk (952, charged a whole 1024) closes the pass, so f comes after it.
    assert seen.admits == [(0.0, 0), (3.0, 1)]
    assert seen.by_row("hit_tokens") == [0, 2816]


def test_two_cold_calls_with_one_prefix_at_once_compute_it_twice(watch: Watch) -> None:
    """SGLang shares only what is published: not within a batch. The duplicate is freed at insertion.

    A prompt leaves a window at its own end only, so c, which ends its match inside, computes all of it
    once more and leaves a window there for d.
    """
    late = [root("c", 2000, 5, 100, 1500), root("d", 2000, 5, 200, 1500)]
    rows = [root("a", 2000, 5, group=1500), root("b", 2000, 5, group=1500), *late]
    seen = watch(rows, sets=["engine.overlap=false"])
    assert seen.by_row("hit_tokens") == [0, 0, 0, 1280]
    assert seen.by_row("lost_swa_tokens") == [0, 0, 1280, 0]
    assert seen.work()[0] == (0, 4000)
    kv = [pool for pool in seen.result.pools if pool.name == "kv"]
    # One copy of the group's five pages, and two more pages of each call.
    assert kv[0].resident_at_end == 1280 + 4 * (1792 - 1280)


@pytest.mark.parametrize(("overlap", "hit"), [("false", 768), ("true", 0)])
def test_a_prompt_is_published_when_its_result_is_processed(watch: Watch, overlap: str, hit: int) -> None:
    """b is chosen for the step after a's. With overlap a's result is not processed by then."""
    rows = [root("a", 1000, 5, group=900), root("b", 1000, 5, group=900), root("c", 1000, 5, 50, 900)]
    sets = ["engine.chunked_prefill_tokens=1024", f"engine.overlap={overlap}"]
    seen = watch(rows, sets=sets)
    assert seen.admits[:2] == [(0.0, 0), (1.0, 1)]
    assert seen.by_row("hit_tokens") == [0, hit, 768]


def test_vllm_hashes_blocks_when_they_are_allocated(watch: Watch) -> None:
    """Async scheduling or not, whoever is admitted next shares a prefix, be it in the same step."""
    rows = [root("a", 1000, 5, group=900), root("b", 1000, 5, group=900)]
    for late in ("false", "true"):
        sets = ["engine.kind=vllm", "engine.max_batched_tokens=1024", f"engine.async_scheduling={late}"]
        seen = watch(rows, sets=sets)
        assert [row for _, row in seen.admits] == [0, 1]
        assert seen.by_row("hit_tokens") == [0, 768]


def test_longest_prefix_first_until_the_queue_is_long(watch: Watch) -> None:
    """lpm takes who hits most; above 128 waiting calls it falls back to first come first served."""
    old = [root("a", 2000), root("plug", 10, 20, at_ms=50)]
    for waiting, first in ((2, "warm"), (129, "cold")):
        cold = [root(f"c{i}", 100, at_ms=55 + i / 1000) for i in range(waiting - 1)]
        warm = child("w", "a", 2000, 2100, at_ms=56)
        rows = [*old, *cold, warm]
        sets = ["engine.schedule_policy=lpm", "engine.overlap=false"]
        seen = watch(rows, sets=sets, slots=1)
        order = [row for _, row in seen.admits[2:]]
        assert order[0] == (len(rows) - 1 if first == "warm" else 2)


def test_copies_of_a_session_share_only_their_group(watch: Watch) -> None:
    from v4sim.workload import WorkloadOptions

    rows = [root("a", 2000, 5, group=600)]
    seen = watch(rows, workload=WorkloadOptions(sessions=1, copies=3))
    assert seen.result.calls["hit_tokens"].tolist() == [0, 0, 512]  # the second leaves the window there
