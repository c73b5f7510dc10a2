"""A run written as a trace holds the run's own times; records carry the names load generators use."""

from __future__ import annotations

import json

import numpy as np
import pytest

from v4sim.errors import RunError
from v4sim.export import export_records, export_trace
from v4traces import Acceptance, CallRef, CallRow, Phase, TraceError, read_table

S = 1_000_000_000


@pytest.fixture
def source(make_trace):
    return make_trace(
        [
            CallRow(
                session_id="a",
                turn=0,
                task_id="t",
                group_id="g",
                group_tokens=64,
                prompt_tokens=100,
                output_tokens=20,
                max_output_tokens=500,
                phases=(Phase("reasoning", 15), Phase("code", 5)),
                acceptance=(Acceptance("code", (0.5, 0.25)),),
                snapshot_id="x",
                model="m",
                priority=2,
                success=True,
            ),
            CallRow(
                session_id="a",
                turn=1,
                task_id="t",
                parent_session="a",
                parent_turn=0,
                shared_tokens=100,
                shared_output_tokens=20,
                prompt_tokens=150,
                output_tokens=10,
                delay_s=3.0,
                trigger="tool_result",
                tool_class="shell",
                tool_latency_s=2.0,
            ),
            CallRow(
                session_id="sub",
                turn=0,
                prompt_tokens=30,
                output_tokens=5,
                trigger="subagent",
                after=(CallRef("a", 0),),
            ),
        ]
    )


@pytest.fixture
def run(make_calls, served):
    """The three calls, the root of a second copy, and one copy that is still queued."""
    return make_calls(
        [
            served(0, 1.25, 2, 3, 8, session=0, hit_tokens=0),
            served(1, 8, 11, 12, 14, session=0, sent_ns=11 * S, queued_ns=11 * S, hit_tokens=64, turn=1)
            | {"first_token_ns": 12_123_456_789},
            served(2, 8, 8, 9, 10, session=1),
            served(0, 20, 20, 21, 22, session=0, instance=1),
            {
                "row": 1,
                "session": 0,
                "instance": 1,
                "ready_ns": 22 * S,
                "sent_ns": 25 * S,
                "turn": 1,
                "done": "queued",
            },
        ]
    )


@pytest.fixture
def exported(run, source, tmp_path):
    assert export_trace(run, source, tmp_path / "out.parquet") == 5
    return read_table(tmp_path / "out.parquet")


def test_roots_arrive_when_they_became_ready_and_others_wait_their_delay(exported):
    assert exported.session_names == ["a", "sub", "a~1"]
    assert exported.arrival_s[[0, 3]].tolist() == [1.25, 20.0]
    assert np.isnan(exported.arrival_s[[1, 2, 4]]).all()
    assert exported.delay_s.tolist() == [0.0, 3.0, 0.0, 0.0, 3.0]


def test_links_stay_within_a_copy(exported):
    assert exported.parent.tolist() == [-1, 0, -1, -1, 3]
    assert exported.after_rows.tolist() == [0, 0, 3]
    assert exported.shared_output_tokens.tolist() == [0, 20, 0, 0, 20]
    assert exported.task_names == ["t", "t~1"]


def test_what_the_run_measured_is_observed(exported):
    assert exported.observed_ttft_s[1] == 1.123456789
    assert exported.observed_e2e_s.tolist()[:4] == [6.75, 3.0, 2.0, 2.0]
    assert exported.observed_device_tokens.tolist() == [0, 64, 0, 0, -1]
    assert np.isnan(exported.observed_e2e_s[4])


def test_everything_else_is_kept(exported, source):
    for name in (
        "prompt_tokens",
        "output_tokens",
        "max_output_tokens",
        "group_tokens",
        "priority",
        "success",
    ):
        assert getattr(exported, name)[:3].tolist() == getattr(source, name).tolist(), name
    assert exported.phase_tokens[:2].tolist() == [15, 5]
    assert exported.acceptance[0] == source.acceptance[0]
    assert exported.tool_latency_s[1] == 2.0
    assert exported.metadata.notes[-1] == "times of a simulated run of trace.parquet (5 calls)"


def test_a_parent_that_was_never_sent_is_cut(make_calls, served, make_trace, tmp_path):
    table = make_trace(
        [
            CallRow(session_id="a", turn=0, prompt_tokens=10, output_tokens=1),
            CallRow(
                session_id="b",
                turn=0,
                prompt_tokens=10,
                output_tokens=1,
                parent_session="a",
                parent_turn=0,
                shared_tokens=9,
            ),
        ]
    )
    export_trace(make_calls([served(1, 0, 0, 1, 1, session=1)]), table, tmp_path / "out.parquet")
    found = read_table(tmp_path / "out.parquet")
    assert (found.parent.tolist(), found.shared_tokens.tolist()) == ([-1], [0])


def test_times_survive_to_the_nanosecond(make_calls, make_trace, tmp_path):
    table = make_trace([CallRow(session_id="a", turn=0, prompt_tokens=1, output_tokens=1)])
    for ready, sent in ((1, 3), (123_456_789_012_345, 123_456_789_012_347), (2**50 + 1, 2**50 + 2**40 + 3)):
        calls = make_calls([{"row": 0, "ready_ns": ready, "sent_ns": sent, "done": "queued"}])
        export_trace(calls, table, tmp_path / "out.parquet", force=True)
        found = read_table(tmp_path / "out.parquet")
        assert round(found.arrival_s[0] * S) == ready
        assert round(found.delay_s[0] * S) == sent - ready


def test_nothing_is_overwritten_without_force(run, source, tmp_path):
    for export, name in ((export_trace, "out.parquet"), (export_records, "out.jsonl")):
        export(run, source, tmp_path / name)
        with pytest.raises((RunError, TraceError), match="not overwritten"):
            export(run, source, tmp_path / name)
        assert export(run, source, tmp_path / name, force=True) == 5


def test_an_empty_run_is_no_trace(make_calls, source, tmp_path):
    with pytest.raises(RunError, match="no calls"):
        export_trace(make_calls([]), source, tmp_path / "out.parquet")
    assert not list(tmp_path.glob("*out*"))


def test_records_have_the_names_and_units_of_a_load_generator(run, source, tmp_path):
    export_records(run, source, tmp_path / "profile_export.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "profile_export.jsonl").read_text().splitlines()]
    assert len(lines) == 5
    metrics = lines[0]["metrics"]
    assert metrics["time_to_first_token"] == {"value": 1750.0, "unit": "ms"}
    assert metrics["request_latency"] == {"value": 6750.0, "unit": "ms"}
    assert metrics["input_sequence_length"]["unit"] == "tokens"
    assert lines[0]["metadata"]["request_start_ns"] == 1_250_000_000
    assert [line["metadata"]["conversation_id"] for line in lines] == ["a", "a", "sub", "a~1", "a~1"]
    assert [line["metadata"]["session_num"] for line in lines] == [0, 0, 1, 2, 2]
    assert lines[4]["metrics"] == {}
    assert lines[4]["error"]["type"] == "queued"


def test_records_of_speculative_decoding(make_calls, served, source, tmp_path):
    call = served(0, 0, 1, 2, 6, output_tokens=9, verify_steps=4, drafts_offered=12, drafts_accepted=4)
    export_records(make_calls([call]), source, tmp_path / "r.jsonl")
    metrics = json.loads((tmp_path / "r.jsonl").read_text())["metrics"]
    assert metrics["inter_token_latency"]["value"] == 500.0
    assert metrics["output_token_throughput_per_user"]["value"] == 2.0
    assert metrics["spec_decode_acceptance_length"] == {"value": 2.0, "unit": "ratio"}
