"""How far each verify step goes: against a walk draft by draft, and across widths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim import streams
from v4sim.acceptance import PHASES, acceptance_table, mean_length
from v4sim.results import RunResult
from v4sim.speculation import AcceptanceModel, SpecPolicy, walk
from v4sim.walks import Walks
from v4traces import Acceptance, CallRow, Phase, TraceTable

Simulate = Callable[..., RunResult]
TABLE = "v4-pro-mtp"


def draft_by_draft(
    seed: int, uid: int, first: int, output: int, drafts: int, phases: Sequence[int] | None
) -> list[int]:
    """Step starts, as an engine finds them: draft i at position g + i survives while luck < its rate."""
    rates = acceptance_table(TABLE).for_drafts(drafts)
    key = streams.mix(seed, streams.ACCEPTANCE, uid)
    starts, at = [], first
    while at < output:
        starts.append(at)
        accepted = 0
        while accepted < drafts and at + accepted < output:
            position = at + accepted
            phase = PHASES.index("reasoning") if phases is None else phases[position]
            if streams.uniform(key, position) >= rates[phase][accepted]:
                break
            accepted += 1
        at += accepted + 1
    return starts


@given(
    seed=st.integers(0, 5),
    uid=st.integers(0, 1 << 40),
    output=st.integers(1, 120),
    drafts=st.integers(1, 5),
    data=st.data(),
)
def test_a_walk_is_what_drafting_token_by_token_gives(
    seed: int, uid: int, output: int, drafts: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, output))
    phases = data.draw(st.none() | st.lists(st.integers(0, 4), min_size=output, max_size=output))
    codes = None if phases is None else np.array(phases, dtype=np.int64)
    model = AcceptanceModel(acceptance_table(TABLE), 5, seed)
    accepted = model.accepted(uid, output, codes, drafts=drafts)
    assert walk(accepted, first, output, drafts).tolist() == draft_by_draft(
        seed, uid, first, output, drafts, phases
    )


@given(
    first=st.integers(0, 30),
    accepted=st.lists(st.integers(0, 3), min_size=1, max_size=60),
)
def test_a_walk_starts_at_the_first_token_and_moves_by_what_was_accepted_and_one(
    first: int, accepted: list[int]
) -> None:
    output = len(accepted)
    starts = walk(np.array(accepted), first, output, 3).tolist()
    assert (starts == []) == (first >= output)
    if starts:
        assert starts[0] == first
        moves = np.diff([*starts, starts[-1] + accepted[starts[-1]] + 1])
        assert moves.tolist() == [accepted[g] + 1 for g in starts]
        assert starts[-1] < output <= starts[-1] + accepted[starts[-1]] + 1


def test_without_drafts_every_token_is_a_step() -> None:
    assert walk(None, 1, 6).tolist() == [1, 2, 3, 4, 5]
    assert walk(None, 6, 6).tolist() == []


@given(uid=st.integers(0, 1 << 40), output=st.integers(1, 200), narrow=st.integers(1, 4))
def test_a_wider_window_sees_the_same_luck_and_is_never_slower(uid: int, output: int, narrow: int) -> None:
    """Common random numbers: whether a draft survives belongs to its position, not to the width."""
    model = AcceptanceModel(acceptance_table("constant:0.6"), 5, 0)
    less = model.accepted(uid, output, None, drafts=narrow)
    more = model.accepted(uid, output, None, drafts=5)
    assert np.array_equal(less, np.minimum(more, narrow))
    assert len(walk(more, 1, output, 5)) <= len(walk(less, 1, output, narrow))


def test_a_walk_resumed_in_the_middle_goes_on_as_if_nothing_had_happened() -> None:
    """After a retraction between two steps the rest of the walk is the same."""
    model = AcceptanceModel(acceptance_table(TABLE), 3, 1)
    accepted = model.accepted(7, 300, None, drafts=3)
    whole = walk(accepted, 1, 300, 3).tolist()
    for cut in (5, 40, 99):
        assert walk(accepted, whole[cut], 300, 3).tolist() == whole[cut:]


@pytest.mark.parametrize("drafts", [1, 2, 3, 5])
@pytest.mark.parametrize("phase", ["reasoning", "code"])
def test_long_answers_reach_the_published_length(drafts: int, phase: str) -> None:
    """Steps accept independently, so the mean of n steps has a deviation below drafts/2/√n."""
    table = acceptance_table(TABLE)
    model = AcceptanceModel(table, drafts, 0)
    output = 60_000
    codes = np.full(output, PHASES.index(phase), dtype=np.int64)
    steps = len(walk(model.accepted(3, output, codes, drafts=drafts), 1, output, drafts))
    expected = mean_length(table.rates[phase][:drafts])
    assert (output - 1) / steps == pytest.approx(expected, abs=4 * drafts / 2 / np.sqrt(steps))


# -- whole runs -----------------------------------------------------------------------------------


def answers(count: int, output: int, **more: Any) -> list[CallRow]:
    return [
        CallRow(session_id=f"s{i}", turn=0, prompt_tokens=10, output_tokens=output, arrival_s=0.0, **more)
        for i in range(count)
    ]


def spec(drafts: int, acceptance: str = TABLE, kind: str = "mtp") -> list[str]:
    return [
        f"speculation.kind={kind}",
        f"speculation.draft_tokens={drafts}",
        f"speculation.acceptance={acceptance}",
    ]


def test_a_run_reports_the_rates_that_it_drew(simulate_rows: Simulate) -> None:
    """By phase and position: accepted of offered is the chance that all drafts up to there survive."""
    phases = (Phase("reasoning", 1500), Phase("code", 1500))
    result = simulate_rows(answers(20, 3000, phases=phases), sets=spec(3))
    assert set(result.acceptance) == {"reasoning", "code"}
    table = acceptance_table(TABLE)
    for phase, (offered, accepted) in result.acceptance.items():
        assert offered[0] == offered[1] == offered[2]
        expected = np.cumprod(table.rates[phase][:3])
        # A step next to the change of phase is judged partly by the other one: a step in 500.
        noise = 4 * 0.5 / np.sqrt(offered[0]) + 1 / 500
        assert np.array(accepted) / np.array(offered) == pytest.approx(expected, abs=noise)
    calls = result.calls
    offered_steps = sum(offered[0] for offered, _ in result.acceptance.values())
    assert offered_steps == calls["verify_steps"].sum()
    assert (calls["drafts_offered"] == 3 * calls["verify_steps"]).all()
    # All tokens but the first come from verify steps: accepted drafts and one more each.
    assert (calls["drafts_accepted"] + calls["verify_steps"] == calls["output_tokens"] - 1).all()


def test_the_last_window_is_cut_at_the_end_of_the_answer(simulate_rows: Simulate) -> None:
    result = simulate_rows(answers(1, 9), sets=spec(3, "constant:1.0"))
    assert result.calls["verify_steps"].tolist() == [2]
    assert result.calls["drafts_accepted"].tolist() == [6]
    result = simulate_rows(answers(1, 8), sets=spec(3, "constant:1.0"))
    # Seven tokens to go: four, then three, of which the last is no draft.
    assert result.calls["verify_steps"].tolist() == [2]
    assert result.calls["drafts_accepted"].tolist() == [5]


def test_drafts_that_never_survive_change_nothing_but_are_offered(simulate_rows: Simulate) -> None:
    off = simulate_rows(answers(3, 50))
    never = simulate_rows(answers(3, 50), sets=spec(3, "constant:0.0"))
    assert np.array_equal(off.calls["last_token_ns"], never.calls["last_token_ns"])
    assert never.calls["drafts_offered"].tolist() == [147] * 3
    assert never.calls["drafts_accepted"].tolist() == [0] * 3


def test_luck_belongs_to_the_call_not_to_its_company(simulate_rows: Simulate) -> None:
    """The same call alone, in a crowd, with another schedule or engine: the same verify steps."""
    alone = simulate_rows(answers(1, 400), sets=spec(2))
    crowd = simulate_rows(answers(9, 400), sets=spec(2))
    slow = simulate_rows(answers(9, 400), sets=[*spec(2), "engine.max_running=2"])
    vllm = simulate_rows(answers(9, 400), sets=[*spec(2), "engine.kind=vllm"])
    expected = alone.calls["verify_steps"][0]
    for run in (crowd, slow, vllm):
        steps = dict(zip(run.calls["row"].tolist(), run.calls["verify_steps"].tolist(), strict=True))
        assert steps[0] == expected
    other = simulate_rows(answers(1, 400), sets=spec(2), seed=1)
    assert other.calls["verify_steps"][0] != expected


@given(
    outputs=st.lists(st.integers(1, 60), min_size=1, max_size=140),
    drafts=st.integers(1, 3),
    data=st.data(),
)
def test_walks_worked_out_together_are_those_worked_out_alone(
    make_trace: Callable[[Sequence[CallRow]], TraceTable],
    outputs: list[int],
    drafts: int,
    data: st.DataObject,
) -> None:
    phased = data.draw(st.booleans())
    rows = [
        CallRow(
            session_id=f"s{i}",
            turn=0,
            prompt_tokens=1,
            output_tokens=output,
            phases=(Phase("code", output // 2), Phase("prose", output - output // 2)) if phased else None,
        )
        for i, output in enumerate(outputs)
    ]
    table = make_trace(rows)
    model = AcceptanceModel(acceptance_table(TABLE), drafts, 2)
    walks = Walks(model, table, table.n)
    if data.draw(st.booleans()):
        walks._together = walks._one_by_one  # type: ignore[method-assign]  # the form of compiled code
    order = data.draw(st.permutations(range(len(rows))))
    for row in order:
        uid = row + table.n * data.draw(st.integers(0, 1))
        steps, phases = walks.fresh(uid)
        accepted = model.accepted(uid, outputs[row], phases, drafts=drafts)
        assert steps.tolist() == walk(accepted, 1, outputs[row], drafts).tolist()
        assert (phases is not None) == phased


# -- adaptive -------------------------------------------------------------------------------------


def test_drafts_are_halved_whenever_the_rows_double_beyond_the_limit() -> None:
    policy = SpecPolicy(5, 8)
    assert [policy.width(rows) for rows in (1, 8, 9, 16, 17, 32, 33, 999)] == [6, 6, 3, 3, 2, 2, 1, 1]
    assert [SpecPolicy(3).width(rows) for rows in (1, 999)] == [4, 4]
    assert SpecPolicy(0, 8).width(99) == 1


@given(drafts=st.integers(0, 16), limit=st.integers(1, 64), rows=st.integers(0, 500))
def test_more_rows_never_get_more_drafts(drafts: int, limit: int, rows: int) -> None:
    policy = SpecPolicy(drafts, limit)
    assert 1 <= policy.width(rows + 1) <= policy.width(rows) <= drafts + 1


def test_the_width_follows_the_busiest_rank_step_by_step(simulate_rows: Simulate) -> None:
    """Four drafts for one row, two for two rows, and back when the second call has ended."""
    from v4sim.cost.base import PARTS

    seen: list[tuple[int, int]] = []

    class Widths:
        def step(self, loads: Any, width: int, kind: str) -> list[int]:
            rows = max(load.rows for load in loads)
            if rows:
                seen.append((rows, width))
            return [1_000_000] + [0] * (len(PARTS) - 1)

    rows = [
        CallRow(session_id="a", turn=0, prompt_tokens=10, output_tokens=101, arrival_s=0.0),
        CallRow(session_id="b", turn=0, prompt_tokens=10, output_tokens=13, arrival_s=0.0045),
    ]
    sets = [
        *spec(4, "constant:1.0"),
        "speculation.adaptive=true",
        "speculation.adaptive_max_rows=1",
        "engine.overlap=false",
    ]
    result = simulate_rows(rows, sets=sets, cost=Widths(), stepwise=True)
    # a: 4 steps of five tokens, b's prefill, then 3 tokens each for 4 steps, then five again.
    assert seen == [(1, 5)] * 4 + [(2, 3)] * 4 + [(1, 5)] * 14
    assert result.calls["verify_steps"].tolist() == [22, 4]
    assert 101 - 1 == 4 * 5 + 4 * 3 + 13 * 5 + 3


@pytest.mark.parametrize(("rate", "steps"), [(1.0, 10), (0.0, 40)])
def test_acceptance_stated_by_the_trace_wins_over_the_table(
    simulate_rows: Simulate, rate: float, steps: int
) -> None:
    """40 tokens after the first: four a step when every draft is accepted, one when none is."""
    row = CallRow(
        session_id="s",
        turn=0,
        prompt_tokens=100,
        output_tokens=41,
        arrival_s=0.0,
        acceptance=(Acceptance("reasoning", (rate, rate, rate)),),
    )
    other = CallRow(session_id="t", turn=0, prompt_tokens=100, output_tokens=41, arrival_s=0.0)
    result = simulate_rows([row, other], sets=["speculation.kind=mtp", "speculation.draft_tokens=3"])
    assert result.calls["verify_steps"][0] == steps
    assert 10 < result.calls["verify_steps"][1] < 40
