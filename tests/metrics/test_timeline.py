"""The timeline opens in Perfetto: slices nest, lanes do not overlap, what was left out is said."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim import timeline
from v4sim.metrics.window import Window
from v4sim.timeline import assign_lanes, choose_calls, timeline_json

S = 1_000_000_000
WHOLE = Window(0, 100 * S, "whole")


@pytest.fixture
def three(make_calls, served):
    """Two calls that overlap on rank 0, one on rank 1 that never got a token."""
    unfinished = served(2, 1, 2, -1e-9, -1e-9, rank=1, done="running", event_class="warm")
    return make_calls(
        [
            served(0, 0, 1, 2, 5, turn=3, prompt_tokens=10, hit_tokens=4, output_tokens=7),
            served(1, 1, 1, 4, 9),
            unfinished,
        ]
    )


@pytest.fixture
def load(make_result):
    """The timeline of some calls, read back."""

    def made(calls, window=WHOLE, **fields):
        result = make_result(ranks=2, **fields)
        return json.loads(timeline_json(calls, ["a"], result, window))

    return made


def test_a_call_is_a_slice_with_its_phases_inside(three, load):
    slices = [event for event in load(three)["traceEvents"] if event["ph"] == "X"]
    first = slices[:4]
    assert [(e["name"], e["ts"], e["dur"]) for e in first] == [
        ("cold", 0.0, 5e6),
        ("queue", 0.0, 1e6),
        ("prefill", 1e6, 1e6),
        ("decode", 2e6, 3e6),
    ]
    assert first[0]["args"] == {
        "session": "a",
        "turn": 3,
        "prompt_tokens": 10,
        "hit_tokens": 4,
        "output_tokens": 7,
        "done": "completed",
    }


def test_a_call_without_an_end_is_drawn_to_the_end(three, load):
    last = [event for event in load(three)["traceEvents"] if event.get("cat") == "call"][-1]
    assert (last["name"], last["ts"], last["ts"] + last["dur"]) == ("warm", 1e6, 9e6)


def test_replicas_are_processes_and_rank_lanes_are_threads(three, load):
    names = {(e["name"], e["args"]["name"]) for e in load(three)["traceEvents"] if e["ph"] == "M"}
    assert names == {
        ("process_name", "replica 0"),
        ("thread_name", "rank 0, lane 0"),
        ("thread_name", "rank 0, lane 1"),
        ("thread_name", "rank 1, lane 0"),
    }


def test_calls_that_never_reached_a_replica_are_left_out(make_calls, load):
    found = load(make_calls([{"row": 0, "sent_ns": 5, "done": "rejected"}]))
    assert found["otherData"]["calls_shown"] == 0
    assert found["otherData"]["calls_injected"] == 1


def test_a_capped_timeline_shows_the_window_and_says_so(make_calls, served, monkeypatch, load):
    monkeypatch.setattr(timeline, "CALLS_SHOWN", 3)
    calls = make_calls([served(i, i, i, i + 0.5, i + 1) for i in range(10)])
    assert choose_calls(calls, Window(4 * S, 8 * S, "")).tolist() == [4, 5, 6]
    assert choose_calls(calls, Window(9 * S, 10 * S, "")).tolist() == [7, 8, 9]
    other = load(calls, window=Window(4 * S, 8 * S, ""))["otherData"]
    assert (other["calls_shown"], other["calls_served"], other["calls_cap"]) == (3, 10, 3)
    assert other["note"] == "3 of 10 calls, those reaching a replica from 4.000 s to 6.000 s"


def test_counters_are_sampled_per_rank(three, monkeypatch, load):
    monkeypatch.setattr(timeline, "SAMPLES_SHOWN", 3)
    series = {"t_ns": np.arange(5) * S, "kv_used": np.arange(10).reshape(2, 5).T}
    counters = [event for event in load(three, series=series)["traceEvents"] if event["ph"] == "C"]
    assert [(c["name"], c["ts"], c["args"]["value"]) for c in counters] == [
        ("kv_used, rank 0", 0.0, 0),
        ("kv_used, rank 0", 2e6, 2),
        ("kv_used, rank 0", 4e6, 4),
        ("kv_used, rank 1", 0.0, 5),
        ("kv_used, rank 1", 2e6, 7),
        ("kv_used, rank 1", 4e6, 9),
    ]


def test_steps_beside_the_calls_are_slices_of_their_replica(three, load, monkeypatch):
    blocks = [(0, i * S, (i + 1) * S, "decode" if i % 2 else "mixed", i, 10 * i) for i in range(6)]
    monkeypatch.setattr(timeline, "STEPS_SHOWN", 2)
    found = load(three, blocks=blocks, blocks_dropped=3)
    slices = [event for event in found["traceEvents"] if event.get("cat") == "step"]
    assert [(e["name"], e["ts"], e["dur"], e["args"]["decode_rows"]) for e in slices] == [
        ("mixed", 0.0, 1e6, 0),
        ("decode", 1e6, 1e6, 1),
    ]
    other = found["otherData"]
    assert (other["step_slices_shown"], other["step_slices_recorded"]) == (2, 6)
    assert other["step_slices_not_recorded"] == 3


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 15)), max_size=40))
def test_spans_of_one_lane_never_overlap_and_lanes_are_as_few_as_needed(spans):
    spans = sorted(spans, key=lambda span: span[1])
    owners = [(0, rank) for rank, _, _ in spans]
    starts = [start for _, start, _ in spans]
    ends = [start + length for _, start, length in spans]
    lanes = assign_lanes(owners, starts, ends)
    by_lane = defaultdict(list)
    for owner, lane, start, end in zip(owners, lanes, starts, ends, strict=True):
        assert all(end_before <= start for end_before in by_lane[owner, lane])
        by_lane[owner, lane].append(end)
    for owner in set(owners):
        mine = [(s, e) for o, s, e in zip(owners, starts, ends, strict=True) if o == owner and e > s]
        most = max((sum(s <= t < e for s, e in mine) for t, _ in mine), default=0)
        used = {lane for o, lane in by_lane if o == owner}
        assert used == set(range(len(used)))
        assert len(used) <= most + sum(
            e == s for o, s, e in zip(owners, starts, ends, strict=True) if o == owner
        )
