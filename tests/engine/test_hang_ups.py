"""Clients that hang up, by hand: steps of 1 ms, one rank. What the engines do is in `tests/oracle`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import simpy

from v4sim.cache.legal import HitPolicy
from v4sim.cache.owner import CacheOwner
from v4sim.cache.sglang_tree import SGLangTree
from v4sim.cache.vllm_tree import VLLMTree
from v4sim.clock import NORMAL, call_at
from v4sim.cost.base import ConstantCost
from v4sim.engine.call import Call
from v4sim.engine.rank import Rank
from v4sim.engine.replica import Replica
from v4sim.engine.sglang import SGLangRules
from v4sim.engine.vllm import VLLMRules
from v4sim.prefix import PrefixIndex
from v4sim.speculation import SpecPolicy

MS = 1_000_000
PAGE = 16


class Bench:
    """One replica; calls as (arrival ms, prompt, output, hangs up at ms or None), each content its own."""

    def __init__(self, kind: str, late: bool, calls: list[tuple[int, int, int, int | None]]) -> None:
        self.env = simpy.Environment(initial_time=0)
        count = len(calls)
        zeros = np.zeros(count, dtype=np.int64)
        table: Any = SimpleNamespace(
            n=count,
            group_names=[],
            shared_tokens=zeros,
            shared_output_tokens=zeros,
            parent=zeros - 1,
            group=zeros - 1,
            group_tokens=zeros,
        )
        prefixes = PrefixIndex(table, PAGE)
        tree = VLLMTree(prefixes) if kind == "vllm" else SGLangTree(prefixes)
        window = 0 if kind == "vllm" else PAGE // 2
        self.owner = CacheOwner(
            tree, HitPolicy("strict", PAGE, window, 1), kv_tokens=4096, swa_tokens=4096, request_slots=8
        )
        rules: Any = _vllm(late) if kind == "vllm" else _sglang(late)
        self.rank = Rank(0, 0, self.owner, keeps_windows=kind == "vllm")
        self.replica = Replica(
            self.env,
            0,
            [self.rank],
            rules,
            ConstantCost(1e-3),
            spec=SpecPolicy(0),
            walks=None,
            spec_blocks_mixed=False,
            on_done=lambda call, now: self.done.append((call.index, call.outcome, now // MS)),
        )
        self.done: list[tuple[int, str, int]] = []
        self.calls = [self._plan(number, *call) for number, call in enumerate(calls)]

    def _plan(self, number: int, at_ms: int, prompt: int, output: int, gone_ms: int | None) -> Call:
        call = Call(
            index=number,
            row=number,
            uid=number,
            session=number,
            copy=0,
            trigger=0,
            event_class=0,
            prompt_tokens=prompt,
            output_tokens=output,
            max_new_tokens=output + 40,
            priority=0,
            bound_tokens=0,
            ready_ns=at_ms * MS,
            sent_ns=at_ms * MS,
            done=self.env.event(),
        )
        call_at(self.env, at_ms * MS, NORMAL, lambda: self.replica.submit(call, 0))
        if gone_ms is not None:
            call_at(self.env, gone_ms * MS, NORMAL, lambda: self.replica.hang_up(call))
        return call

    def run(self) -> None:
        self.env.run()
        owner = self.owner
        assert owner.kv.used == owner.kv_resident
        assert owner.slots.used == 0
        assert owner.tree.protected_tokens == 0


def _sglang(late: bool) -> SGLangRules:
    return SGLangRules(
        PAGE, PAGE // 2, 64, 1024, 8, 0.3, 256, None, 0, "fcfs", "default", 0, late_results=late
    )


def _vllm(late: bool) -> VLLMRules:
    return VLLMRules(PAGE, 64, 8, 0, True, 0.0, 0, late_results=late)


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
@pytest.mark.parametrize("late", [False, True])
def test_whoever_waits_leaves_the_queue(kind: str, late: bool) -> None:
    """Eight run; the ninth never gets in, and nothing of it was computed."""
    bench = Bench(kind, late, [(0, 8, 60, None)] * 8 + [(10, 8, 5, 20)])
    bench.run()
    waiter = bench.calls[8]
    assert waiter.outcome == "aborted"
    assert waiter.first_token_ns == waiter.admit_ns == -1
    assert [call.outcome for call in bench.calls[:8]] == ["completed"] * 8


@pytest.mark.parametrize(("kind", "late", "ends_ms"), [("vllm", False, 10), ("vllm", True, 11)])
def test_vllm_frees_at_once(kind: str, late: bool, ends_ms: int) -> None:
    """Before the results of the step that ends then; with async scheduling one more step is under way."""
    bench = Bench(kind, late, [(0, 32, 200, 10)])
    bench.run()
    assert bench.done == [(0, "aborted", ends_ms)]


@pytest.mark.parametrize(("late", "ends_ms", "tokens"), [(False, 11, 11), (True, 11, 11)])
def test_sglang_computes_it_once_more_and_keeps_the_answer(late: bool, ends_ms: int, tokens: int) -> None:
    bench = Bench("sglang", late, [(0, 32, 200, 10)])
    bench.run()
    assert bench.done == [(0, "aborted", ends_ms)]
    assert bench.calls[0].output_tokens == tokens
    # Prompt and answer, but for the last token without overlap: whole pages of 42 or 43 tokens.
    assert bench.owner.kv_resident == 32


def test_sglang_stops_a_prompt_between_chunks_and_does_not_cache_the_last() -> None:
    """Chunks of 64 tokens; gone in the third of ten: two are cached."""
    bench = Bench("sglang", False, [(0, 640, 5, 3)])
    bench.run()
    assert bench.done == [(0, "aborted", 3)]
    assert bench.calls[0].first_token_ns == -1
    assert bench.owner.kv_resident == 128


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
@pytest.mark.parametrize("late", [False, True])
def test_the_others_go_on_as_if_it_had_ended(kind: str, late: bool) -> None:
    bench = Bench(kind, late, [(0, 40, 90, None), (0, 40, 300, 33), (5, 300, 20, 9), (7, 40, 50, None)])
    bench.run()
    assert [call.outcome for call in bench.calls] == ["completed", "aborted", "aborted", "completed"]
    assert bench.calls[0].output_tokens == 90


def test_a_client_that_has_its_answer_is_not_heard_of() -> None:
    bench = Bench("vllm", True, [(0, 32, 5, 50), (0, 32, 80, None)])
    bench.run()
    assert [call.outcome for call in bench.calls] == ["completed", "completed"]


def test_the_reason_for_which_a_call_waited_ends_with_it() -> None:
    """Who was refused need not be first in the queue: priorities may put it anywhere."""
    bench = Bench("vllm", False, [(0, 8, 1, None), (0, 8, 1, None)])
    (first, refused), rank = bench.calls, bench.rank
    rank.enqueue(first, 0)
    rank.enqueue(refused, 0)
    rank.block(refused, "kv", 0)
    rank.leave_queue(first, 3 * MS)
    assert rank.blocked.head is refused
    rank.leave_queue(refused, 5 * MS)
    assert rank.blocked.head is None
    assert refused.waits == [("kv", 5 * MS)]
