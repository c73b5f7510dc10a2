"""How many sessions there are, when they start, and what their calls wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.errors import ConfigError
from v4sim.results import RunResult
from v4sim.workload import WorkloadOptions, families_of, starts
from v4traces import CallRef, CallRow, TraceTable

Simulate = Callable[..., RunResult]
MakeTrace = Callable[[Sequence[CallRow]], TraceTable]
NS = 1_000_000_000


def turns(name: str, count: int, delay_s: float = 0.0, **more: Any) -> list[CallRow]:
    return [
        CallRow(session_id=name, turn=t, prompt_tokens=100, output_tokens=5, delay_s=delay_s, **more)
        for t in range(count)
    ]


def root(name: str, at_s: float | None = None, **more: Any) -> CallRow:
    return CallRow(session_id=name, turn=0, prompt_tokens=100, output_tokens=5, arrival_s=at_s, **more)


def alive_sessions(result: RunResult, instants: np.ndarray) -> np.ndarray:
    """Sessions between their first call's ready and their last call's end, at each instant."""
    calls = result.calls
    key = calls["session"].astype(np.int64) * 1000 + calls["instance"]
    first, last = [], []
    for one in np.unique(key):
        mine = key == one
        first.append(calls["ready_ns"][mine].min())
        last.append(calls["last_token_ns"][mine].max())
    began, ended = np.sort(first), np.sort(last)
    return np.searchsorted(began, instants, "right") - np.searchsorted(ended, instants, "right")


# -- closed loop ----------------------------------------------------------------------------------


@pytest.mark.parametrize("alive", [1, 3, 7])
def test_a_closed_loop_keeps_n_sessions_alive_until_they_run_out(simulate_rows: Simulate, alive: int) -> None:
    rng = np.random.default_rng(alive)
    rows = [row for s in range(20) for row in turns(f"s{s}", int(rng.integers(1, 6)), delay_s=0.05)]
    result = simulate_rows(rows, workload=WorkloadOptions(sessions=alive))
    assert result.num_calls == len(rows)
    last_start = result.calls["ready_ns"][result.calls["turn"] == 0].max()
    at = np.linspace(0, int(last_start), 400, endpoint=False).astype(np.int64)
    assert (alive_sessions(result, at) == alive).all()


def test_the_next_session_starts_at_the_instant_at_which_one_ends(simulate_rows: Simulate) -> None:
    rows = [row for s in range(4) for row in turns(f"s{s}", 2, delay_s=0.1)]
    calls = simulate_rows(rows, workload=WorkloadOptions(sessions=1)).calls
    ends = calls["last_token_ns"][calls["turn"] == 1]
    begins = calls["ready_ns"][calls["turn"] == 0]
    assert begins.tolist() == [0, *ends[:-1].tolist()]
    # A first turn's own delay counts too.
    assert (calls["sent_ns"] - calls["ready_ns"] == 100_000_000).all()


def test_more_sessions_than_the_trace_has_are_as_many_as_it_has(simulate_rows: Simulate) -> None:
    calls = simulate_rows(
        [row for s in range(3) for row in turns(f"s{s}", 1)], workload=WorkloadOptions(sessions=50)
    ).calls
    assert calls["ready_ns"].tolist() == [0, 0, 0]


def test_a_limit_of_calls_starts_no_further_session(simulate_rows: Simulate) -> None:
    rows = [row for s in range(10) for row in turns(f"s{s}", 3)]
    calls = simulate_rows(rows, workload=WorkloadOptions(sessions=1, limit_calls=7)).calls
    assert len(calls["row"]) == 9  # the session that was begun is finished


# -- open loop ------------------------------------------------------------------------------------


def test_sessions_arrive_at_their_own_times_relative_to_the_first(simulate_rows: Simulate) -> None:
    rows = [root("a", 1000.0), root("b", 1000.25), root("c", 1003.5)]
    calls = simulate_rows(rows).calls
    assert calls["sent_ns"].tolist() == [0, 250_000_000, 3_500_000_000]


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_time_scale_stretches_arrivals_and_delays(simulate_rows: Simulate, scale: float) -> None:
    rows = [*turns("a", 2, delay_s=0.2, arrival_s=None), root("b", 2.0)]
    rows[0] = CallRow(session_id="a", turn=0, prompt_tokens=100, output_tokens=5, arrival_s=0.0)
    calls = simulate_rows(rows, workload=WorkloadOptions(arrivals="trace", time_scale=scale)).calls
    second, other = (calls["row"].tolist().index(row) for row in (1, 2))
    assert calls["sent_ns"][other] == scale * 2 * NS
    assert calls["sent_ns"][second] - calls["ready_ns"][second] == scale * 0.2 * NS


def test_a_call_that_waits_for_nothing_comes_at_its_own_time(simulate_rows: Simulate) -> None:
    """Two roots that a later call joins are one family, but each keeps its arrival."""
    rows = [
        root("a", 10.0),
        root("b", 12.5),
        CallRow(
            session_id="a",
            turn=1,
            prompt_tokens=100,
            output_tokens=5,
            after=(CallRef("a", 0), CallRef("b", 0)),
        ),
        CallRow(session_id="a", turn=2, prompt_tokens=100, output_tokens=5, arrival_s=14.0, after=()),
    ]
    for workload in (WorkloadOptions(arrivals="trace"), WorkloadOptions(sessions=1)):
        calls = simulate_rows(rows, workload=workload).calls
        sent = dict(zip(calls["row"].tolist(), calls["sent_ns"].tolist(), strict=True))
        ended = dict(zip(calls["row"].tolist(), calls["last_token_ns"].tolist(), strict=True))
        assert (sent[0], sent[1], sent[3]) == (0, 2_500_000_000, 4_000_000_000)
        assert sent[2] == max(ended[0], ended[1])


def test_a_family_without_a_time_comes_with_the_first(simulate_rows: Simulate) -> None:
    rows = [root("none"), root("b", 500.0), root("c", 501.0)]
    calls = simulate_rows(rows).calls
    sent = dict(zip(calls["row"].tolist(), calls["sent_ns"].tolist(), strict=True))
    assert sent == {0: 0, 1: 0, 2: NS}


def test_poisson_arrivals_have_the_rate_and_the_spread(make_trace: MakeTrace) -> None:
    """Gaps: mean 1/λ, deviation of n of them 1/(λ√n); a share e⁻¹ is longer than the mean."""
    count, rate = 4000, 2.5
    table = make_trace([root(f"s{i}") for i in range(count)])
    options = WorkloadOptions(arrivals="poisson", rate_per_s=rate)
    at = np.array([start for start, _, _ in starts(families_of(table), table, options, seed=3)]) / NS
    gaps = np.diff(at, prepend=0.0)
    assert gaps.min() >= 0
    assert gaps.mean() == pytest.approx(1 / rate, abs=4 / (rate * np.sqrt(count)))
    longer = (gaps > 1 / rate).mean()
    assert longer == pytest.approx(np.exp(-1), abs=4 * np.sqrt(np.exp(-1) * (1 - np.exp(-1)) / count))
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4 / np.sqrt(count)


def test_poisson_arrivals_depend_on_the_seed_and_scale_with_the_rate(make_trace: MakeTrace) -> None:
    table = make_trace([root(f"s{i}") for i in range(50)])
    families = families_of(table)

    def at(rate: float, seed: int) -> np.ndarray:
        options = WorkloadOptions(arrivals="poisson", rate_per_s=rate)
        return np.array([start for start, _, _ in starts(families, table, options, seed)])

    assert np.array_equal(at(1.0, 1), at(1.0, 1))
    assert not np.array_equal(at(1.0, 1), at(1.0, 2))
    # Common random numbers: another rate sees the same luck.
    assert np.allclose(at(1.0, 1), 4 * at(4.0, 1), atol=4)


# -- families -------------------------------------------------------------------------------------


def test_sub_agents_belong_to_the_session_that_waits_for_them(make_trace: MakeTrace) -> None:
    rows = [
        root("a"),
        root("x"),
        CallRow(
            session_id="sub",
            turn=0,
            prompt_tokens=50,
            output_tokens=5,
            trigger="subagent",
            after=(CallRef("a", 0),),
        ),
        CallRow(
            session_id="a",
            turn=1,
            prompt_tokens=100,
            output_tokens=5,
            after=(CallRef("a", 0), CallRef("sub", 0)),
        ),
    ]
    assert [family.rows.tolist() for family in families_of(make_trace(rows))] == [[0, 2, 3], [1]]


def test_a_prefix_parent_makes_no_family(make_trace: MakeTrace) -> None:
    """A fork may extend a stranger's content; it does not wait for it."""
    rows = [
        root("a"),
        CallRow(
            session_id="b",
            turn=0,
            parent_session="a",
            parent_turn=0,
            shared_tokens=64,
            prompt_tokens=100,
            output_tokens=5,
        ),
    ]
    assert [family.rows.tolist() for family in families_of(make_trace(rows))] == [[0], [1]]


def test_a_join_waits_for_the_slowest_sub_agent_and_the_session_lives_until_it(
    simulate_rows: Simulate,
) -> None:
    rows = [root("a")]
    rows += [
        CallRow(
            session_id=f"sub{i}",
            turn=0,
            prompt_tokens=50,
            output_tokens=10 + 100 * i,
            trigger="subagent",
            after=(CallRef("a", 0),),
            delay_s=0.01 * i,
        )
        for i in range(3)
    ]
    join = tuple(CallRef(f"sub{i}", 0) for i in range(3))
    rows.append(CallRow(session_id="a", turn=1, prompt_tokens=100, output_tokens=5, after=join))
    rows.append(root("next"))
    calls = simulate_rows(rows, workload=WorkloadOptions(sessions=1)).calls
    by_row = {row: i for i, row in enumerate(calls["row"].tolist())}
    slowest = max(calls["last_token_ns"][by_row[row]] for row in (1, 2, 3))
    assert calls["ready_ns"][by_row[4]] == slowest
    assert (calls["ready_ns"][[by_row[row] for row in (1, 2, 3)]] == calls["last_token_ns"][by_row[0]]).all()
    assert calls["ready_ns"][by_row[5]] == calls["last_token_ns"][by_row[4]]


@given(
    links=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12),
)
def test_families_are_the_connected_parts(make_trace: MakeTrace, links: list[tuple[int, int]]) -> None:
    waits: dict[int, set[int]] = {s: set() for s in range(10)}
    for a, b in links:
        waits[max(a, b)].add(min(a, b))
    rows = [
        root(f"s{s}", after=tuple(CallRef(f"s{other}", 0) for other in sorted(waits[s] - {s})))
        for s in range(10)
    ]
    found = [set(family.rows.tolist()) for family in families_of(make_trace(rows))]
    assert sorted(row for rows in found for row in rows) == list(range(10))
    part = {row: i for i, rows in enumerate(found) for row in rows}
    assert all(part[a] == part[b] for a, b in links)
    # And no larger: as many parts as a graph of these edges has.
    edges = {(a, b) for a, b in links if a != b}
    merged = list(range(10))
    for a, b in edges:
        merged = [merged[b] if m == merged[a] else m for m in merged]
    assert len(found) == len(set(merged))


# -- copies ---------------------------------------------------------------------------------------


def test_copies_share_the_groups_prefix_and_nothing_else(simulate_rows: Simulate) -> None:
    rows = [
        CallRow(session_id="a", turn=0, group_id="g", group_tokens=512, prompt_tokens=2048, output_tokens=2),
        CallRow(
            session_id="a",
            turn=1,
            parent_session="a",
            parent_turn=0,
            shared_tokens=2048,
            prompt_tokens=3000,
            output_tokens=2,
        ),
        CallRow(session_id="b", turn=0, prompt_tokens=2048, output_tokens=2),
    ]
    calls = simulate_rows(rows, workload=WorkloadOptions(sessions=1, copies=3)).calls
    assert calls["instance"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    # The second copy finds the prefix without a window, computes it and leaves one there.
    assert calls["hit_tokens"].tolist() == [0, 2048, 0, 0, 2048, 0, 512, 2048, 0]


def test_copies_of_an_open_loop_follow_one_after_the_other(simulate_rows: Simulate) -> None:
    rows = [root("a", 0.0), root("b", 1.0), root("c", 3.0)]
    calls = simulate_rows(rows, workload=WorkloadOptions(arrivals="trace", copies=2)).calls
    assert (calls["sent_ns"] / NS).tolist() == [0, 1, 3, 3, 4, 6]


# -- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sessions": 1, "arrivals": "trace"}, "exclude each other"),
        ({"sessions": 0}, "at least one session"),
        ({"arrivals": "uniform"}, "poisson:RATE"),
        ({"arrivals": "poisson"}, "positive number of root"),
        ({"arrivals": "poisson", "rate_per_s": -1.0}, "positive number of root"),
        ({"arrivals": "poisson", "rate_per_s": float("inf")}, "positive number of root"),
        ({"time_scale": 0.0}, "positive number"),
        ({"copies": 0}, "at least one"),
    ],
)
def test_workloads_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WorkloadOptions(**options)


def test_what_the_user_left_open_is_chosen_and_said(make_trace: MakeTrace) -> None:
    untimed, timed = make_trace([root("a"), root("b")]), make_trace([root("a", 0.0), root("b", 1.0)])
    chosen, notes = WorkloadOptions().settled(untimed, 4)
    assert chosen.sessions == 2
    assert "--sessions 2" in notes[0]
    chosen, notes = WorkloadOptions().settled(timed, 4)
    assert chosen.arrivals == "trace"
    assert "trace's own times" in notes[0]
    assert WorkloadOptions(arrivals="trace").settled(timed, 4)[1] == []
    with pytest.raises(ConfigError, match="no arrival times"):
        WorkloadOptions(arrivals="trace").settled(untimed, 4)
