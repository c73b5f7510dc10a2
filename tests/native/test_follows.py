"""The adapter follows an engine: whatever it decides, the run keeps every law and every call its tokens."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import simpy
from fake import FakeEngine

from v4sim.cache.legal import HitPolicy
from v4sim.cache.owner import CacheOwner
from v4sim.cache.tree import SpanTree
from v4sim.engine.call import Call
from v4sim.engine.native.rank import NativeRank
from v4sim.prefix import PrefixIndex
from v4sim.results import RunResult
from v4traces import CallRow

Driven = Callable[..., RunResult]
SHARES = ("shared_tokens", "shared_output_tokens", "group_tokens")
SYNC = ["engine.async_scheduling=false"]
MTP = ["speculation.kind=mtp", "speculation.draft_tokens=2"]


def call(name: str, prompt: int, output: int = 1, at_s: float = 0.0, **more: Any) -> CallRow:
    return CallRow(
        session_id=name, turn=0, prompt_tokens=prompt, output_tokens=output, arrival_s=at_s, **more
    )


def column(result: RunResult, name: str) -> list[int]:
    order = np.argsort(result.calls["row"])
    return [int(value) for value in np.asarray(result.calls[name])[order]]


def test_chunks_and_decodes_are_the_engines(driven: Driven) -> None:
    """5,000 tokens in steps of 2,048 are three steps of 10 ms, and each further token one."""
    result = driven([call("a", 5000, 4)], FakeEngine, SYNC)
    assert column(result, "first_token_ns") == [30_000_000]
    assert column(result, "last_token_ns") == [60_000_000]
    assert column(result, "computed_tokens") == [5000]


@pytest.mark.parametrize("late", [False, True])
def test_when_the_engine_hears_of_results(driven: Driven, late: bool) -> None:
    """With late results it chooses the next step first; what came is a step later in its hands."""
    engine = FakeEngine()
    driven([call("a", 10, 3)], lambda: engine, [] if late else SYNC)
    told = [word for word in engine.heard if not word.startswith("add")]
    if late:
        assert told[:4] == ["schedule", "schedule", "hand over", "schedule"]
    else:
        assert told[:5] == ["schedule", "hand over", "schedule", "hand over", "schedule"]


@pytest.mark.parametrize("foresees", [False, True])
def test_a_call_that_ended_is_computed_once_more_if_the_engine_says_so(
    driven: Driven, foresees: bool
) -> None:
    """Three tokens are three steps, and a fourth where nobody foresaw the end."""
    rows = [call("a", 10, 3, max_output_tokens=3)]
    result = driven(rows, lambda: FakeEngine(foresees=foresees))
    assert sum(result.steps.counts.values()) == (3 if foresees else 4)


def test_an_arrival_is_seen_a_step_later_with_late_results(driven: Driven) -> None:
    rows = [call("a", 10, 30), call("b", 10, 1, at_s=0.055)]
    assert column(driven(rows, FakeEngine, SYNC), "admit_ns")[1] == 60_000_000
    assert column(driven(rows, FakeEngine), "admit_ns")[1] == 70_000_000


def test_a_hit_is_the_engines(driven: Driven) -> None:
    rows = [
        call("a", 5000, 2),
        call("b", 6000, 2, at_s=1.0, parent_session="a", parent_turn=0, shared_tokens=5000),
    ]
    result = driven(rows, lambda: FakeEngine(hit=lambda request: 4864 * request.number), SYNC)
    assert column(result, "hit_tokens") == [0, 4864]
    assert column(result, "computed_tokens") == [5000, 6000 - 4864]


class Forgetful(FakeEngine):
    """Leaves the second call out of one step, in which both would decode."""

    def schedule(self) -> Any:
        batch = super().schedule()
        if self.heard.count("schedule") == 5:
            rows = [row for row in batch.rows if row.number != 1]
            self._batches[-1] = [row.number for row in rows]
            self._running[1].in_flight -= 1
            return batch._replace(rows=rows)
        return batch


def test_a_decode_that_is_left_out_waits_a_step(driven: Driven) -> None:
    rows = [call("a", 10, 8), call("b", 10, 8)]
    result = driven(rows, Forgetful, SYNC)
    assert column(result, "last_token_ns") == [80_000_000, 90_000_000]
    assert column(result, "retractions") == [0, 0]


def test_pools_show_what_the_engine_holds(driven: Driven) -> None:
    result = driven([call("a", 5000, 4)], lambda: FakeEngine(blocks=100), SYNC)
    kv = next(pool for pool in result.pools if pool.name == "kv")
    assert (kv.capacity, kv.peak, kv.used_at_end) == (25_600, 5120, 0)


class Stuck(FakeEngine):
    """Never admits anybody."""

    def schedule(self) -> Any:
        from v4sim.engine.native.base import Batch

        return Batch([], [])


def test_what_the_engine_never_admits_is_given_up(driven: Driven) -> None:
    engine = Stuck()
    result = driven([call("a", 10)], lambda: engine)
    assert list(result.calls["done"]) == ["rejected"]
    assert engine.heard[-1] == "drop 0"


def crowd(seed: int) -> list[CallRow]:
    draw = random.Random(seed)
    times = sorted(draw.choice([0.0, 0.1, 0.3]) for _ in range(draw.randint(2, 14)))
    return [
        call(f"s{i}", draw.choice([1, 30, 700, 5000]), draw.randint(1, 60), at_s)
        for i, at_s in enumerate(times)
    ]


def follow_whims(driven: Driven, engine: type[FakeEngine], sets: list[str], drafts: int, kind: str) -> None:
    """On two ranks: every call gets its tokens, once, and some have lost their places."""
    retracted = 0
    for seed in range(12):
        rows = crowd(seed)
        numbers = iter(range(2))

        def new(seed: int = seed, numbers: Iterator[int] = numbers) -> FakeEngine:
            return engine(drafts=drafts, seats=6, whims=random.Random(f"{seed}/{next(numbers)}"))

        result = driven(rows, new, sets, ranks=2, kind=kind)
        assert column(result, "output_tokens") == [row.output_tokens for row in rows]
        assert set(result.calls["done"]) == {"completed"}
        retracted += sum(column(result, "retractions"))
    assert retracted > 5


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("drafts", [0, 2])
def test_whims_break_no_law(driven: Driven, late: bool, drafts: int) -> None:
    """Decodes left out, drafts cut, calls preempted."""
    follow_whims(driven, FakeEngine, [*([] if late else SYNC), *(MTP if drafts else [])], drafts, "vllm")


def test_the_engine_is_told_to_forget_who_was_given_up() -> None:
    """That is the call which was refused, be it first in the queue or not."""
    engine = FakeEngine()
    table: Any = SimpleNamespace(
        n=2,
        group_names=[],
        group=np.full(2, -1),
        parent=np.full(2, -1),
        **dict.fromkeys(SHARES, np.zeros(2, int)),
    )
    owner = CacheOwner(
        SpanTree(PrefixIndex(table, 256)),
        HitPolicy("strict", 256, 128, 1),
        kv_tokens=4096,
        swa_tokens=0,
        request_slots=8,
    )
    rank = NativeRank(0, 0, owner, engine, overhead_tokens=0, max_context_tokens=4096)
    calls = [
        Call(
            index=number,
            row=number,
            uid=number,
            session=number,
            copy=0,
            trigger=0,
            event_class=0,
            prompt_tokens=10,
            output_tokens=1,
            max_new_tokens=1,
            priority=0,
            bound_tokens=0,
            ready_ns=0,
            sent_ns=0,
            done=simpy.Environment().event(),
        )
        for number in range(2)
    ]
    for one in calls:
        rank.enqueue(one, 0)
    rank.feed(0)
    rank.block(calls[1], "kv", 0)
    assert rank.drop_head("rejected", 5) is calls[1]
    assert engine.heard == ["add 0", "add 1", "drop 1"]
    assert list(rank.waiting) == [calls[0]]
    assert list(rank.known) == [0]
