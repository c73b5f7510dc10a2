"""The laws on runs made by chance: equal arrivals, forks, sub-agents, groups, drafts, too little memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from v4sim.metrics.calls import DONE, Calls
from v4sim.metrics.outcomes import calls_entry
from v4sim.workload import WorkloadOptions
from v4traces import CallRef, CallRow

# Pages are of 256 tokens, so prompts of a few pages fork inside pages as well as between them.
TOKENS = st.sampled_from([1, 2, 255, 256, 257, 500, 900, 1300, 2100])


@st.composite
def call_rows(draw):
    """Sessions of up to five turns that extend, fork, roll back and start sub-agents."""
    rows: list[CallRow] = []
    arrival = 0.0
    for number in range(draw(st.integers(1, 6))):
        name = f"s{number}"
        arrival += draw(st.sampled_from([0.0, 0.0, 0.5, 3.0]))
        prompt = draw(TOKENS)
        grouped = draw(st.booleans())
        rows.append(
            CallRow(
                session_id=name,
                turn=0,
                arrival_s=arrival,
                prompt_tokens=prompt,
                output_tokens=draw(st.integers(1, 60)),
                group_id="g" if grouped else None,
                group_tokens=draw(st.integers(0, prompt)) if grouped else None,
            )
        )
        for turn in range(1, draw(st.integers(1, 5))):
            parent = draw(st.sampled_from(rows))
            shared = draw(st.integers(0, parent.prompt_tokens))
            outputs = parent.output_tokens if draw(st.booleans()) else 0
            outputs = outputs if shared == parent.prompt_tokens else 0
            rows.append(
                CallRow(
                    session_id=name,
                    turn=turn,
                    parent_session=parent.session_id,
                    parent_turn=parent.turn,
                    shared_tokens=shared,
                    shared_output_tokens=outputs or None,
                    prompt_tokens=shared + outputs + draw(TOKENS),
                    output_tokens=draw(st.integers(1, 60)),
                    delay_s=draw(st.sampled_from([0.0, 0.0, 0.02, 1.0])),
                    trigger="tool_result",
                )
            )
        if draw(st.booleans()):
            rows.append(
                CallRow(
                    session_id=f"{name}-sub",
                    turn=0,
                    prompt_tokens=draw(TOKENS),
                    output_tokens=draw(st.integers(1, 60)),
                    trigger="subagent",
                    after=(CallRef(name, 0),),
                )
            )
    return rows


ENGINES = st.sampled_from(
    [
        [],
        ["engine.overlap=false", "router.policy=sticky"],
        ["engine.mixed_chunk=true", "engine.chunked_prefill_tokens=1024"],
        ["speculation.kind=mtp", "speculation.draft_tokens=2", "engine.chunked_prefill_tokens=1024"],
        ["engine.kind=vllm", "engine.max_batched_tokens=512"],
        [
            "engine.kind=vllm",
            "speculation.kind=mtp",
            "speculation.draft_tokens=3",
            "router.policy=cache_aware",
        ],
    ]
)


@given(
    rows=call_rows(),
    sets=ENGINES,
    kv_tokens=st.sampled_from([1 << 20, 8192, 4096, 2560]),
    swa_tokens=st.sampled_from([1 << 20, 4096]),
    copies=st.integers(1, 2),
    sessions=st.sampled_from([None, 1, 3]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_law_holds(simulate_rows, rows, sets, kv_tokens, swa_tokens, copies, sessions):
    workload = WorkloadOptions(sessions=sessions, arrivals=None if sessions else "trace", copies=copies)
    world = simulate_rows(rows, sets=sets, kv_tokens=kv_tokens, swa_tokens=swa_tokens, workload=workload)
    assert [finding.message for finding in world.broken()] == []
    assert len(world.result.calls["row"]) == copies * len(rows)


def test_padding_is_nobodys_prompt(simulate_rows):
    """vLLM pads a newcomer with one token left beside decodes: rows that no call asked for."""
    rows = [
        CallRow(session_id="a", turn=0, arrival_s=0.0, prompt_tokens=300, output_tokens=50),
        CallRow(
            session_id="b",
            turn=0,
            arrival_s=0.2,
            prompt_tokens=257,
            output_tokens=5,
            parent_session="a",
            parent_turn=0,
            shared_tokens=257,
        ),
    ]
    sets = ["engine.kind=vllm", "speculation.kind=mtp", "speculation.draft_tokens=2"]
    sets += ["parallel.attention_dp=1", "parallel.attention_tp=4", "parallel.ep=1"]
    world = simulate_rows(rows, sets=sets)
    calls = world.result.calls
    assert list(calls["hit_tokens"][calls["row"] == 1]) == [256]
    assert world.broken() == []


def test_the_runs_above_do_reach_the_rare_cases(simulate_rows):
    """Memory pressure of the kind above retracts, refuses and recomputes; otherwise it would prove little."""
    rows = [
        CallRow(
            session_id=f"s{i}",
            turn=0,
            arrival_s=0.0,
            prompt_tokens=900,
            output_tokens=700,
            max_output_tokens=700,
        )
        for i in range(8)
    ] + [CallRow(session_id="big", turn=0, arrival_s=0.0, prompt_tokens=9000, output_tokens=5)]
    for sets in (["engine.conservativeness=0.0"], ["engine.kind=vllm"]):
        world = simulate_rows(rows, sets=sets, kv_tokens=5120)
        calls = world.result.calls
        assert calls["retractions"].max() > 0, sets
        assert calls["recomputed_tokens"].max() > 0, sets
        assert calls["done"].count("rejected") == 1, sets
        assert world.broken() == []


@given(st.lists(st.sampled_from(DONE), max_size=30))
def test_outcomes_sum_to_the_injected_calls(outcomes):
    columns = {
        "done": outcomes,
        "event_class": ["cold"] * len(outcomes),
    }
    from v4sim.metrics.calls import INT_COLUMNS

    columns |= {name: np.zeros(len(outcomes), dtype=np.int64) for name in INT_COLUMNS}
    calls = Calls.of(columns)
    entry = calls_entry(calls, np.ones(len(outcomes), dtype=bool))
    assert entry["injected"] == len(outcomes) == sum(entry[name] for name in DONE)


@pytest.mark.parametrize("sessions", [2, 5])
def test_littles_law_is_asked_and_holds(simulate_rows, sessions):
    """The samples of a short run are complete, so the law compares two independent sums."""
    rows = [CallRow(session_id=f"s{i}", turn=0, prompt_tokens=300, output_tokens=30) for i in range(12)]
    world = simulate_rows(rows, workload=WorkloadOptions(sessions=sessions))
    assert len(world.result.series["t_ns"]) == 2 * len(rows)
    assert world.broken() == []
