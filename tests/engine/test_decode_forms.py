"""Arrays and loops: two forms of the decoding sequences, one answer, held against a plain reading of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.cost import RankLoad, StepCost, compile_cost, load_profile
from v4sim.cost.base import ConstantCost
from v4sim.engine.decode import DecodeBatch, PageRule
from v4sim.engine.decode.arrays import ArrayBatch
from v4sim.engine.decode.loops import LoopBatch
from v4sim.model import spec

PAGE = 4
RANKS = 3


class Sequence:
    """What a batch reads of a call."""

    def __init__(self, index: int, prompt: int, bursts: list[int]) -> None:
        self.index = index
        self.prompt_tokens = prompt
        self.starts = 1 + np.cumsum([0, *bursts[:-1]])
        self.num_steps = len(bursts)
        self.output_tokens = 1 + sum(bursts)
        self.offset = 0
        self.clock0 = 0
        self.emit_ns = 1000 + index

    def context(self, step: int) -> int:
        starts = [*self.starts.tolist(), self.output_tokens]
        return self.prompt_tokens + int(starts[step]) - 1


class Rank:
    """What a batch reads of a rank."""

    def __init__(self, index: int, clock: int, decoding: list[Sequence]) -> None:
        self.index = index
        self.clock = clock
        self.decoding = decoding
        self.last_decode_ns = 500 + index

    def contexts(self, step: int) -> list[int]:
        """Before the step that comes after `step` more; -1: before the latest."""
        return [call.context(self.clock - call.clock0 + step) for call in self.decoding]


@st.composite
def groups(draw: st.DrawFn, width: int) -> list[Rank]:
    """Ranks whose sequences stand anywhere with at least four steps ahead of them; some have none."""
    ranks, index = [], 0
    for number in range(RANKS):
        clock = draw(st.integers(4, 9))
        calls = []
        for _ in range(draw(st.integers(0, 3))):
            ago = draw(st.integers(0, 4))
            bursts = draw(st.lists(st.integers(1, width), min_size=ago + 5, max_size=ago + 8))
            call = Sequence(index, draw(st.integers(1, 400)), bursts)
            call.clock0 = clock - ago
            calls.append(call)
            index += 1
        ranks.append(Rank(number, clock, calls))
    return ranks


def filled(batch: DecodeBatch, ranks: list[Rank], before: int) -> DecodeBatch:
    for rank in ranks:
        for call in rank.decoding:
            batch.store.put(cast(Any, call), before)
    batch.rebuild(cast(Any, ranks))
    return batch


def both(rule: PageRule, ranks: list[Rank], before: int) -> list[DecodeBatch]:
    return [filled(kind(RANKS, rule), ranks, before) for kind in (ArrayBatch, LoopBatch)]


@given(data=st.data(), width=st.integers(1, 3), in_flight=st.sampled_from([None, 0, 2]))
def test_both_forms_look_ahead_as_the_walks_say(
    data: st.DataObject, width: int, in_flight: int | None
) -> None:
    ranks = data.draw(groups(width))
    before = data.draw(st.integers(0, 2))
    rule = PageRule(PAGE, data.draw(st.sampled_from([1, 2, 6])), in_flight)
    lag, more = rule.lag, in_flight or 0

    def pages(context: int) -> int:
        return -(-(context + rule.lookahead_tokens) // PAGE) * PAGE

    def counted(rank: Rank, step: int) -> int:
        """Pages that a rank holds in the step after so many more."""
        total = 0
        for call in rank.decoding:
            at = rank.clock - call.clock0 + step - lag
            total += pages((call.context(at) if at >= 0 else call.context(0) - before) + more)
        return total

    lags = [data.draw(st.integers(0, 1)) if in_flight == 0 else lag for _ in ranks]
    steps = data.draw(st.integers(1, 4))
    for batch in both(rule, ranks, before):
        contexts = [rank.contexts(0) for rank in ranks]
        assert batch.rows == [len(rank.decoding) for rank in ranks]
        assert batch.loads() == (
            [sum(of_rank) for of_rank in contexts],
            [max(of_rank, default=0) for of_rank in contexts],
        )
        for rank, needed, own in zip(ranks, batch.needs(lags), lags, strict=True):
            assert needed == counted(rank, 0 if own == lag else 1 - own)
        assert batch.held_last(steps) == [counted(rank, steps - 1) for rank in ranks]
        for rank in ranks:
            assert batch.held(rank.index, steps) == [counted(rank, step) for step in range(steps)]


@given(data=st.data(), width=st.integers(1, 3))
def test_both_forms_tell_the_bursts_of_those_who_decode_and_move_them_on(
    data: st.DataObject, width: int
) -> None:
    ranks = data.draw(groups(width).filter(lambda ranks: any(rank.decoding for rank in ranks)))
    busy = [rank for rank in ranks if rank.decoding]
    active = data.draw(st.lists(st.sampled_from(busy), min_size=1, unique=True))
    active.sort(key=lambda rank: rank.index)
    steps = data.draw(st.integers(1, 4))
    calls = [(rank, call) for rank in active for call in rank.decoding]
    tokens = [np.diff([rank.contexts(step)[i] for step in range(steps + 1)]) for rank, i in _places(active)]
    for batch in both(PageRule(PAGE, 1, None), ranks, 0):
        later = np.arange(1, steps)
        seen = batch.bursts([rank.index for rank in active], 9000, later, steps, width)
        emitted = [call.emit_ns if call.clock0 == rank.clock else rank.last_decode_ns for rank, call in calls]
        assert seen.gaps_ns.tolist() == [9000 - at for at in emitted]
        assert seen.durations_ns is later
        if width == 1:
            assert seen.tokens is None
            assert seen.of_size is None
        else:
            assert seen.tokens is not None
            assert seen.of_size is not None
            assert seen.tokens.tolist() == [burst[0] for burst in tokens]
            for size, counted in enumerate(seen.of_size, 1):
                assert counted.tolist() == [
                    sum(burst[step] == size for burst in tokens) for step in range(1, steps)
                ]
        for rank in active:
            batch.advance(rank.index, 2, 7000)
        moved = [rank.contexts(2 if rank in active else 0) for rank in ranks]
        assert batch.loads()[0] == [sum(of_rank) for of_rank in moved]
        assert set(batch.bursts([active[0].index], 9000, later[:0], 1, width).gaps_ns.tolist()) == {2000}


def _places(ranks: list[Rank]) -> Iterator[tuple[Rank, int]]:
    for rank in ranks:
        for i in range(len(rank.decoding)):
            yield rank, i


COSTS: tuple[dict[str, Any], ...] = (
    {},
    {"drafts": 1},
    {"drafts": 3, "sets": ["engine.overlap=false"]},
    {"gpu": "h200"},
    {"model": "v4.1-flash"},
    {"sets": ["engine.cpu_step_us=40000"]},
)


@pytest.fixture(scope="session")
def costs() -> list[StepCost]:
    from v4sim import config

    found = []
    for choice in COSTS:
        sets = [f"model.name={choice.get('model', 'v4-flash')}", *choice.get("sets", [])]
        if "drafts" in choice:
            sets += ["speculation.kind=mtp", f"speculation.draft_tokens={choice['drafts']}"]
        gpu = choice.get("gpu", "b200")
        deployment = config.load("4xB200 V4-Flash DPA4+EP4 sglang", sets=[*sets, f"hardware.gpu={gpu}"])
        deployment = config.resolve(deployment)
        found.append(compile_cost(load_profile(gpu), deployment, spec(deployment.model.name)))
    return [*found, ConstantCost(1e-3, 1e-6)]


@given(data=st.data(), width=st.integers(1, 3))
def test_both_forms_price_a_run_as_its_single_steps(
    costs: list[StepCost], data: st.DataObject, width: int
) -> None:
    ranks = data.draw(groups(width).filter(lambda ranks: any(rank.decoding for rank in ranks)))
    far = data.draw(st.sampled_from([0, 0, 3000, 200_000]))  # contexts on every piece of the tables
    for rank in ranks:
        for call in rank.decoding:
            call.prompt_tokens += far
    cost = data.draw(st.sampled_from(costs))
    steps = data.draw(st.integers(1, 4))
    rows = [len(rank.decoding) for rank in ranks]
    alone = [
        cost.step(
            [
                RankLoad(count, sum(contexts), max(contexts, default=0))
                for count, contexts in zip(rows, (rank.contexts(step) for rank in ranks), strict=True)
            ],
            width,
            "decode",
        )
        for step in range(steps)
    ]
    first = [17, *[3] * (len(alone[0]) - 1)] if steps > 1 and data.draw(st.booleans()) else None
    if first is not None:
        alone[0] = first
    lasted = [sum(parts) for parts in alone]
    for batch in both(PageRule(PAGE, 1, None), ranks, 0):
        found = batch.price(cost, 5000, steps, width, first)
        assert found.parts_ns.T.tolist() == alone
        assert found.durations_ns.tolist() == lasted
        assert found.ends_ns.tolist() == (5000 + np.cumsum(lasted)).tolist()


@pytest.mark.parametrize("kind", [ArrayBatch, LoopBatch])
def test_a_store_that_is_full_forgets_who_left_and_keeps_the_rest(kind: type[DecodeBatch]) -> None:
    """3000 calls of 64 steps do not fit into 65,536 entries at once; a few at a time do, for ever."""
    batch = kind(RANKS, PageRule(PAGE, 1, None))
    store = batch.store
    alive: list[Sequence] = []
    for index in range(3000):
        call = Sequence(index, 10 + index, [1 + (index + step) % 2 for step in range(64)])
        store.put(cast(Any, call), 1)
        alive.append(call)
        if index % 4:
            gone = alive.pop(0)
            gone.num_steps = 5  # a client that hangs up cuts the walk short
            store.drop(cast(Any, gone))
    assert store.capacity == 1 << 17, "750 calls are alive at the end"
    for call in alive:
        expected = [call.context(step) for step in range(65)]
        assert store.contexts(cast(Any, call), 65).tolist() == expected
        sizes = np.diff(expected).tolist()
        assert store.sizes(cast(Any, call), 64, 3) == [sizes.count(1), sizes.count(2), 0]
