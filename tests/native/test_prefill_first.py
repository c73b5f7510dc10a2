"""Around an engine whose step is a prefill or a decode: who runs when, and what the ranks agree on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake import FakePrefillFirst
from test_follows import MTP, call, column, follow_whims

from v4sim.engine.native.base import Batch
from v4sim.results import RunResult

Driven = Callable[..., RunResult]
SYNC = ["engine.overlap=false"]


def test_a_prompt_stops_who_decodes(driven: Driven) -> None:
    """b's 5,000 tokens take three steps of 2,048 from 50 ms on; a goes on after them."""
    rows = [call("a", 10, 8), call("b", 5000, 1, at_s=0.045)]
    result = driven(rows, FakePrefillFirst, SYNC, kind="sglang")
    assert column(result, "first_token_ns") == [10_000_000, 80_000_000]
    assert column(result, "last_token_ns") == [110_000_000, 80_000_000]


@pytest.mark.parametrize(("sets", "stops"), [([], False), (MTP, True)])
def test_a_prompt_of_another_rank_stops_verify_steps(driven: Driven, sets: list[str], stops: bool) -> None:
    """As SGLang's ranks agree: with drafts a step is a prefill for all of them, or for none."""
    rows = [call("a", 10, 40), call("b", 5000, 1, at_s=0.045)]
    engines: list[FakePrefillFirst] = []

    def new() -> FakePrefillFirst:
        engines.append(FakePrefillFirst(drafts=2 if sets else 0))
        return engines[-1]

    result = driven(rows, new, [*SYNC, *sets, "router.policy=round_robin"], ranks=2, kind="sglang")
    assert column(result, "rank") == [0, 1]
    verified, blocked = column(result, "verify_steps")[0], 3 if stops else 0
    assert sum(result.steps.counts.values()) == 1 + verified + blocked
    assert engines[0].heard.count("decode") == verified + 1  # and once for nothing, at the end
    assert engines[0].heard.count("schedule") == 1 + verified + 1 + blocked
    assert engines[0].prefills_seen == engines[1].prefills_seen == 4


@pytest.mark.parametrize("late", [False, True])
def test_when_the_engine_hears_of_results(driven: Driven, late: bool) -> None:
    """With late results it chooses the next step first, be it a prefill or a decode."""
    engine = FakePrefillFirst()
    driven([call("a", 10, 3)], lambda: engine, [] if late else SYNC, kind="sglang")
    told = [word for word in engine.heard if not word.startswith("add")]
    if late:
        assert told[:6] == ["schedule", "schedule", "decode", "hand over", "schedule", "decode"]
    else:
        assert told[:5] == ["schedule", "hand over", "schedule", "decode", "hand over"]


def test_an_arrival_is_seen_a_step_later_with_late_results(driven: Driven) -> None:
    rows = [call("a", 10, 30), call("b", 10, 1, at_s=0.055)]
    assert column(driven(rows, FakePrefillFirst, SYNC, kind="sglang"), "admit_ns")[1] == 60_000_000
    assert column(driven(rows, FakePrefillFirst, kind="sglang"), "admit_ns")[1] == 70_000_000


@pytest.mark.parametrize("foresees", [False, True])
def test_a_call_that_ended_is_computed_once_more_if_the_engine_says_so(
    driven: Driven, foresees: bool
) -> None:
    rows = [call("a", 10, 3, max_output_tokens=3)]
    result = driven(rows, lambda: FakePrefillFirst(foresees=foresees), kind="sglang")
    assert sum(result.steps.counts.values()) == (3 if foresees else 4)


class Retracts(FakePrefillFirst):
    """Takes the second call's place at the fifth choice of a decode."""

    def _preempt(self) -> list[int]:
        if self.heard.count("decode") != 5:
            return []
        known = self._running.pop()
        known.computed = 0
        self._waiting.insert(0, known)
        return [known.request.number]


@pytest.mark.parametrize(("sets", "recomputed"), [(SYNC, 15), ([], 14)])
def test_a_retracted_call_loses_what_is_in_flight(driven: Driven, sets: list[str], recomputed: int) -> None:
    """It has five tokens; with overlap the engine has heard of four, and computes its prompt and those."""
    result = driven([call("a", 10, 9), call("b", 10, 9)], Retracts, sets, kind="sglang")
    assert column(result, "retractions") == [0, 1]
    assert column(result, "recomputed_tokens") == [0, recomputed]
    assert column(result, "output_tokens") == [9, 9]


class RetractsForGood(Retracts):
    """Has one seat less from then on."""

    def _preempt(self) -> list[int]:
        out = super()._preempt()
        self._seats -= len(out)
        return out


def test_a_retracted_call_waits_behind_who_waits(driven: Driven) -> None:
    """c stays at the head when b loses its place, until a has ended (50 to 90 ms); then b waits for c."""
    rows = [call("a", 10, 9), call("b", 10, 9), call("c", 10, 2, at_s=0.045)]
    result = driven(rows, lambda: RetractsForGood(seats=2), SYNC, kind="sglang")
    assert column(result, "retractions") == [0, 1, 0]
    assert column(result, "wait_kv_ns") == [0, 20_000_000, 40_000_000]


def test_a_call_that_ended_in_flight_need_not_come_back(driven: Driven) -> None:
    """Its last token is with its client, while the engine took its place for not knowing."""
    engine = Retracts()
    result = driven([call("a", 10, 9), call("b", 10, 5)], lambda: engine, kind="sglang")
    assert column(result, "retractions") == [0, 0]
    assert column(result, "last_token_ns") == [90_000_000, 50_000_000]
    assert "drop 1" in engine.heard


def test_a_rank_that_is_stopped_still_hears_of_its_last_step(driven: Driven) -> None:
    """With overlap that is before its next choice, which others' prompts make an empty one."""
    engines: list[FakePrefillFirst] = []

    def new() -> FakePrefillFirst:
        engines.append(FakePrefillFirst(drafts=2))
        return engines[-1]

    rows = [call("a", 10, 40), call("b", 5000, 1, at_s=0.045)]
    driven(rows, new, [*MTP, "router.policy=round_robin"], ranks=2, kind="sglang")
    heard = " ".join(word.replace(" ", "-") for word in engines[0].heard)
    stopped = "schedule hand-over schedule schedule schedule decode"  # three steps of b's prompt
    assert heard.count(stopped) == 1


class Aborts(FakePrefillFirst):
    """Ends its first call for good at the third choice of a decode, as when its pages never suffice."""

    def decode(self) -> Batch:
        batch = super().decode()
        if self.heard.count("decode") != 3:
            return batch
        self._batches.pop()
        self._running.clear()
        return Batch([], [], [0])


def test_a_call_that_the_engine_ends_is_aborted(driven: Driven) -> None:
    engine = Aborts()
    result = driven([call("a", 10, 9), call("b", 10, 2, at_s=0.5)], lambda: engine, SYNC, kind="sglang")
    assert list(result.calls["done"][:2]) == ["aborted", "completed"]
    assert "drop 0" in engine.heard


class HoldsBack(FakePrefillFirst):
    """Lets nobody decode while a call is about to end: its pages are waited for."""

    def decode(self) -> Batch:
        if any(known.output + known.in_flight >= known.request.max_new_tokens for known in self._running):
            self.heard.append("decode")
            return Batch([], [])
        return super().decode()


def test_who_is_held_back_goes_on_after_the_results(driven: Driven) -> None:
    """a ends with its third token, which the loop hears of in a round of its own, without a step."""
    rows = [call("a", 10, 3, max_output_tokens=3), call("b", 10, 6)]
    result = driven(rows, HoldsBack, kind="sglang")
    assert column(result, "last_token_ns") == [30_000_000, 60_000_000]


def test_the_engine_is_told_that_nothing_runs(driven: Driven) -> None:
    engine = FakePrefillFirst()
    driven([call("a", 10, 3), call("b", 10, 3, at_s=1.0)], lambda: engine, kind="sglang")
    assert engine.idle_rounds >= 2


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("drafts", [0, 2])
def test_whims_break_no_law(driven: Driven, late: bool, drafts: int) -> None:
    """Rounds left out, calls retracted."""
    sets = [*([] if late else SYNC), *(MTP if drafts else [])]
    follow_whims(driven, FakePrefillFirst, sets, drafts, "sglang")
