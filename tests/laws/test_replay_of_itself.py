"""A run exported as a trace and replayed gives the same calls again (inference-sim 1032)."""

from __future__ import annotations

import numpy as np
import pytest

from v4sim import config, simulate
from v4sim.capacity import RankPools
from v4sim.cost.base import ConstantCost
from v4sim.export import export_trace
from v4sim.metrics.calls import INT_COLUMNS, Calls
from v4sim.workload import WorkloadOptions
from v4traces import CallRef, CallRow, read_table

# What names a call in its own trace, not what happened to it.
OWN_NAMES = {"session", "instance", "row"}
MOMENTS = {
    *("ready_ns", "sent_ns", "queued_ns", "admit_ns", "first_token_ns", "first_seen_ns", "last_token_ns")
}


def rows() -> list[CallRow]:
    made = []
    for i in range(6):
        name = f"s{i}"
        made.append(
            CallRow(
                session_id=name,
                turn=0,
                prompt_tokens=700 + 300 * i,
                output_tokens=20 + 7 * i,
                group_id="g",
                group_tokens=600,
            )
        )
        made.append(
            CallRow(
                session_id=name,
                turn=1,
                parent_session=name,
                parent_turn=0,
                shared_tokens=made[-1].prompt_tokens,
                shared_output_tokens=made[-1].output_tokens,
                prompt_tokens=made[-1].prompt_tokens + made[-1].output_tokens + 400,
                output_tokens=31,
                delay_s=1.234567,
                trigger="tool_result",
            )
        )
        if i % 2:
            made.append(
                CallRow(
                    session_id=f"{name}-sub",
                    turn=0,
                    prompt_tokens=500,
                    output_tokens=12,
                    trigger="subagent",
                    after=(CallRef(name, 0),),
                    delay_s=0.3,
                )
            )
            made.append(
                CallRow(
                    session_id=name,
                    turn=2,
                    prompt_tokens=2500,
                    output_tokens=9,
                    parent_session=name,
                    parent_turn=1,
                    shared_tokens=900,
                    after=(CallRef(name, 1), CallRef(f"{name}-sub", 0)),
                )
            )
    return made


@pytest.fixture
def replayed(simulate_rows, tmp_path):
    def go(workload: WorkloadOptions, sets: list[str], kv_tokens: int):
        first = simulate_rows(rows(), workload=workload, sets=sets, kv_tokens=kv_tokens)
        calls = Calls.of(first.result.calls)
        export_trace(
            calls, first.table, tmp_path / "again.parquet", closed_loop=workload.sessions is not None
        )
        table = read_table(tmp_path / "again.parquet")
        second = simulate.run(
            table,
            config.load(
                "4xB200 V4-Flash DPA4+EP4 sglang",
                sets=["parallel.attention_dp=2", "parallel.attention_tp=2", *sets],
            ),
            ConstantCost(0.02, 0.001, 0.00001),
            WorkloadOptions(arrivals="trace"),
            pools=RankPools(kv_tokens, 1 << 20, 64, 0, (), kv_tokens),
        )
        return calls, Calls.of(second.calls), table

    return go


@pytest.mark.parametrize(
    ("sets", "kv_tokens"),
    [
        (["router.policy=sticky"], 1 << 20),
        (["router.policy=cache_aware"], 6144),
        (["engine.kind=vllm"], 6144),
        (["speculation.kind=mtp", "speculation.draft_tokens=2"], 1 << 20),
    ],
)
@pytest.mark.parametrize("sessions", [2, 6])
def test_a_closed_loop_replayed_from_its_own_times_gives_the_same_calls(replayed, sets, kv_tokens, sessions):
    first, second, _ = replayed(WorkloadOptions(sessions=sessions), sets, kv_tokens)
    for name in sorted(set(INT_COLUMNS) - OWN_NAMES):
        # Each session that took over from another is written one nanosecond late.
        slack = 6 if name.endswith("_ns") else 0
        assert np.abs(second[name] - first[name]).max() <= slack, name
    assert list(second.event_class) == list(first.event_class)
    assert list(second.done) == list(first.done)


def test_an_open_loop_replayed_from_its_own_times_is_itself(replayed):
    workload = WorkloadOptions(arrivals="poisson", rate_per_s=2.0)
    first, second, _ = replayed(workload, ["router.policy=sticky"], 1 << 20)
    # Time starts at the first arrival when a trace is replayed.
    began = int(first["ready_ns"].min())
    for name in sorted(set(INT_COLUMNS) - OWN_NAMES):
        shift = began if name in MOMENTS else 0
        assert (second[name] + shift).tolist() == first[name].tolist(), name


def test_copies_become_sessions_of_their_own(replayed):
    workload = WorkloadOptions(arrivals="poisson", rate_per_s=2.0, copies=2)
    first, second, table = replayed(workload, [], 1 << 20)
    assert len(second) == len(first) == 2 * len(rows())
    assert "s0~1" in table.session_names
    ttft = [calls["first_token_ns"] - calls["sent_ns"] for calls in (first, second)]
    assert np.sort(ttft[0]).tolist() == np.sort(ttft[1]).tolist()


def test_observed_times_are_those_that_a_replay_predicts(replayed):
    _, second, table = replayed(WorkloadOptions(arrivals="poisson", rate_per_s=2.0), [], 1 << 20)
    predicted = (second["first_token_ns"] - second["sent_ns"]) / 1e9
    assert table.observed_ttft_s[second["row"]].tolist() == predicted.tolist()
