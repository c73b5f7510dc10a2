"""Public reports about prefix caches and their window pools, with their own numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from v4sim.results import RunResult
from v4traces import CallRow

Simulate = Callable[..., RunResult]


def visits(order: str, tokens: dict[str, int]) -> list[CallRow]:
    """One call a second; each letter names a prompt, sent again whenever the letter comes back."""
    rows: list[CallRow] = []
    first: dict[str, str] = {}
    for i, name in enumerate(order):
        rows.append(
            CallRow(
                session_id=f"{name}{i}",
                turn=0,
                parent_session=first.get(name),
                parent_turn=0 if name in first else None,
                shared_tokens=tokens[name] if name in first else 0,
                prompt_tokens=tokens[name],
                output_tokens=2,
                arrival_s=float(i),
            )
        )
        first.setdefault(name, f"{name}{i}")
    return rows


def session(name: str, first: int, more: int, turns: int, delay_s: float) -> list[CallRow]:
    """Turn t has first + t·more tokens, all of the turn before among them."""
    return [
        CallRow(
            session_id=name,
            turn=t,
            parent_session=name if t else None,
            parent_turn=t - 1 if t else None,
            shared_tokens=first + (t - 1) * more if t else 0,
            prompt_tokens=first + t * more,
            output_tokens=2,
            arrival_s=None if t else 0.0,
            delay_s=delay_s if t else 0.0,
        )
        for t in range(turns)
    ]


def hits(result: RunResult) -> list[int]:
    found: list[int] = result.calls["hit_tokens"].tolist()
    return found


A_AND_B = visits("AABBAB", {"A": 998_609, "B": 887_653})
MILLIONS = {"kv_tokens": 8_000_000, "sets": ["engine.chunked_prefill_tokens=8192"]}


def test_two_sessions_of_a_million_take_each_others_tails_in_an_empty_pool(simulate_rows: Simulate) -> None:
    """MiaAI-Lab/DeepSeek-v4.1-Flash-DGX-Sparks#27: hits 0, 998,400, 0, 887,552, 0, 0.

    The pool of 8M tokens never fills; the 45,568 slots for windows are what binds: each cold prompt
    streams through them and takes the other session's tail.
    """
    result = simulate_rows(A_AND_B, swa_tokens=45_568, **MILLIONS)
    assert hits(result) == [0, 998_400, 0, 887_552, 0, 0]
    lost = result.calls["lost_swa_tokens"].tolist()
    assert lost[:4] == [0, 0, 0, 0]
    assert min(lost[4:]) > 800_000
    kv, swa = (next(pool for pool in result.pools if pool.name == name) for name in ("kv", "swa"))
    assert kv.peak < 0.25 * kv.capacity
    assert swa.peak > 0.97 * swa.capacity


def test_with_room_for_both_tails_the_same_visits_hit(simulate_rows: Simulate) -> None:
    result = simulate_rows(A_AND_B, swa_tokens=2_000_000, **MILLIONS)
    assert hits(result) == [0, 998_400, 0, 887_552, 998_400, 887_552]


@pytest.mark.parametrize(("veto", "model"), [("strict", "v4-flash"), ("bounded_replay", "v4.1-flash")])
def test_a_veto_on_lost_windows_costs_a_long_session_its_whole_prefix_every_turn(
    simulate_rows: Simulate, veto: str, model: str
) -> None:
    """sglang#35129: 110k tokens, 2k more each turn; between turns others take the windows.

    With the veto the hit is 0 each turn although the history is there. Bounded replay keeps the hit, rounded
    down to a page, and computes the window again.
    """
    turns = 5
    rows = session("long", 110_000, 2_000, turns, 0.5)
    rows += [
        CallRow(session_id=f"x{i}", turn=0, prompt_tokens=40_000, output_tokens=2, arrival_s=0.3 + 0.5 * i)
        for i in range(turns)
    ]
    sets = [f"engine.swa_veto={veto}", f"model.name={model}", "engine.chunked_prefill_tokens=8192"]
    calls = simulate_rows(rows, swa_tokens=10_240, sets=sets).calls
    long = [i for i, row in enumerate(calls["row"]) if row < turns]
    found, lost, replayed = (
        [int(calls[name][i]) for i in long] for name in ("hit_tokens", "lost_swa_tokens", "recomputed_tokens")
    )
    if veto == "strict":
        assert found == [0] * turns
        assert min(lost[1:]) > 100_000
        assert replayed == [0] * turns
    else:
        assert found == [0] + [(110_000 + 2_000 * t) // 256 * 256 for t in range(turns - 1)]
        assert replayed == [0] + [128] * (turns - 1)


def taking_turns(sessions: int, turns: int) -> list[CallRow]:
    """Every session's next turn after all others had theirs, 100 ms apart: 10,240 tokens and 512 more."""
    return [
        CallRow(
            session_id=f"s{s}",
            turn=turn,
            parent_session=f"s{s}" if turn else None,
            parent_turn=turn - 1 if turn else None,
            shared_tokens=10_240 + 512 * (turn - 1) if turn else 0,
            prompt_tokens=10_240 + 512 * turn,
            output_tokens=2,
            arrival_s=0.1 * (turn * sessions + s),
            after=(),
        )
        for turn in range(turns)
        for s in range(sessions)
    ]


def reuse(result: RunResult) -> float:
    """Share of what could hit, of all turns but the first."""
    later = result.calls["turn"] > 0
    return float(result.calls["hit_tokens"][later].sum() / result.calls["bound_tokens"][later].sum())


WORLDS: dict[str, dict[str, Any]] = {
    "sglang": {"swa_tokens": 16_384, "sets": ["engine.chunked_prefill_tokens=2048"]},
    "vllm": {"kv_tokens": 131_072, "sets": ["engine.kind=vllm", "engine.window_retention=all"]},
}


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_reuse_of_sessions_in_turn_falls_off_a_step_not_a_slope(simulate_rows: Simulate, engine: str) -> None:
    """vllm#48435: once the working set exceeds the pool, the least recently used is what comes next.

    In SGLang the window pool binds, long before the history does, if it is small: a prompt leaves one window.
    In vLLM all blocks are one pool.
    """
    found = [reuse(simulate_rows(taking_turns(n, 4), **WORLDS[engine])) for n in range(2, 24)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.99
    assert found[-1] < 0.01
    between = [share for share in found if 0.01 < share < 0.99]
    assert len(between) <= 2, "all or nothing, but for the session or two at the edge"


def test_hit_of_equal_rounds_is_n_over_n_plus_one(simulate_rows: Simulate) -> None:
    """sglang#33984: 0, 0.5, 0.667, 0.75, 0.8 …"""
    calls = simulate_rows(session("s", 2560, 2560, 8, 0.1)).calls
    ratio = calls["hit_tokens"] / calls["prompt_tokens"]
    assert ratio.tolist() == [n / (n + 1) for n in range(8)]


@pytest.mark.parametrize(("shared", "hit"), [(2048, 0), (4095, 0), (4096, 4096), (8191, 4096)])
def test_prompts_below_the_scheduler_block_never_hit(simulate_rows: Simulate, shared: int, hit: int) -> None:
    """vllm-ascend#16270: the block of all groups together is LCM(128, 4096, 32, 2, 8) = 4,096 tokens."""
    block = int(np.lcm.reduce([128, 4096, 32, 2, 8]))
    assert block == 4096
    rows = [
        CallRow(session_id="a", turn=0, prompt_tokens=9000, output_tokens=2, arrival_s=0.0),
        CallRow(
            session_id="b",
            turn=0,
            parent_session="a",
            parent_turn=0,
            shared_tokens=shared,
            prompt_tokens=9000,
            output_tokens=2,
            arrival_s=1.0,
        ),
    ]
    sets = ["engine.kind=vllm", "engine.window_retention=all", f"engine.page_tokens={block}"]
    assert hits(simulate_rows(rows, sets=sets)) == [0, hit]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_hundred_requests_through_a_small_pool_wait_and_leak_nothing(
    simulate_rows: Simulate, engine: str
) -> None:
    """sglang#23704: a pool of 245,760 tokens, requests of 46 to 63k: the fourth of 63k (252k) waits.

    The report's pool was in host memory and its admission looked at the device only; the law is the same
    for any pool: who does not fit waits, nobody is lost, and in the end all that is taken is resident.
    """
    sizes = [63_000] * 4 + np.random.default_rng(7).integers(46_000, 63_001, 96).tolist()
    rows = [
        CallRow(
            session_id=f"s{i}",
            turn=0,
            prompt_tokens=size,
            output_tokens=200,
            max_output_tokens=256,
            arrival_s=0.0,
        )
        for i, size in enumerate(sizes)
    ]
    result = simulate_rows(rows, kv_tokens=245_760, sets=[f"engine.kind={engine}"])
    calls = result.calls
    assert set(calls["done"]) == {"completed"}
    assert calls["wait_kv_ns"][3] > 0
    assert calls["admit_ns"][3] >= calls["last_token_ns"][:3].min()
    for pool in result.pools:
        assert pool.peak <= pool.capacity
        assert pool.used_at_end == pool.resident_at_end


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_tokens_by_tier_add_up_to_prompt_tokens_whatever_happens_to_a_call(
    simulate_rows: Simulate, engine: str
) -> None:
    """sglang#37503: hits were credited to loads that had been declined."""
    rng = np.random.default_rng(8)
    rows: list[CallRow] = []
    for i in range(60):
        parent = rows[int(rng.integers(0, i))] if i > 3 and i % 3 else None
        prompt = int(rng.integers(1, 5000)) if i % 20 else 9000
        rows.append(
            CallRow(
                session_id=f"s{i}",
                turn=0,
                parent_session=parent.session_id if parent else None,
                parent_turn=0 if parent else None,
                shared_tokens=min(parent.prompt_tokens, prompt) if parent else 0,
                prompt_tokens=prompt,
                output_tokens=int(rng.integers(1, 700)),
                max_output_tokens=700,
                arrival_s=i * 0.02,
            )
        )
    sets = [f"engine.kind={engine}"] + (["engine.clip_max_new_tokens=0"] if engine == "sglang" else [])
    calls = simulate_rows(rows, kv_tokens=8192, sets=sets).calls
    done = np.array(calls["done"])
    rejected, served = done == "rejected", done == "completed"
    assert (calls["retractions"] > 0).any()
    assert rejected.any()
    tiers = calls["hit_tokens"] + calls["hit_host_tokens"] + calls["hit_storage_tokens"]
    assert np.array_equal((tiers + calls["computed_tokens"])[served], calls["prompt_tokens"][served])
    assert not (tiers + calls["computed_tokens"])[rejected].any()
