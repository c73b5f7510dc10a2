"""Laws of the generator: legal rows, true prefix links, repeatable, scalable, in constant memory."""

from __future__ import annotations

import tracemalloc
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from v4traces import CallRow, TraceTable, check_trace, read_table
from v4traces.synth import SynthParams, command, generate
from v4traces.synth.quantiles import quantiles

BUSY = replace(SynthParams(), subagent_session_share=0.5)  # enough sub-agents for a small trace


def by_session(rows: Iterable[CallRow]) -> dict[str, list[CallRow]]:
    sessions = defaultdict(list)
    for row in rows:
        sessions[row.session_id].append(row)
    return dict(sessions)


@pytest.fixture(scope="module")
def busy() -> dict[str, list[CallRow]]:
    return by_session(generate(BUSY, 5, 40))


# --- Legal rows.


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**63),
    cap=st.one_of(st.none(), st.integers(32_768, 300_000)),
    rate=st.one_of(st.none(), st.floats(1e-4, 10.0)),
)
def test_every_trace_obeys_the_laws_whatever_the_seed_and_the_cap(
    write: Callable[..., TraceTable], seed: int, cap: int | None, rate: float | None
) -> None:
    params = replace(BUSY, context_cap_tokens=cap)
    table = write(generate(params, seed, 12, arrivals_rate=rate))
    assert [f for f in check_trace(table) if f.severity == "error"] == []
    assert (table.prompt_tokens + table.output_tokens <= (cap or 1_000_000)).all()
    assert (table.output_tokens >= 1).all()


def test_an_output_ends_where_the_window_ends(write: Callable[..., TraceTable]) -> None:
    wordy = replace(SynthParams(), output=quantiles("p0 500, p100 30000"), context_cap_tokens=40_000)
    table = write(generate(wordy, 1, 10))
    reaches = table.prompt_tokens + table.output_tokens == 40_000
    assert (table.prompt_tokens + table.output_tokens <= 40_000).all()
    assert 20 < reaches.sum() < table.n / 2


def test_a_shared_prefix_names_the_earliest_call_that_has_all_of_it(busy: dict[str, list[CallRow]]) -> None:
    """Prompts written out as runs of tokens, compared with every earlier prompt of the session."""
    kinds: Counter[str] = Counter()
    for rows in busy.values():
        prompts: list[list[tuple[int, int]]] = []  # (call that first had the run, where the run ends)
        for number, row in enumerate(rows):
            mine: list[tuple[int, int]] = []
            if row.parent_turn is not None:
                for owner, end in prompts[row.parent_turn]:
                    mine.append((owner, min(end, row.shared_tokens)))
                    if end >= row.shared_tokens:
                        break
            if not mine or mine[-1][1] < row.prompt_tokens:
                mine.append((number, row.prompt_tokens))
            shared = [common(mine, other) for other in prompts]
            best = max(shared, default=0)
            assert row.shared_tokens == best
            if best:
                assert row.parent_turn == shared.index(best)
                kinds["extends the call before" if row.parent_turn == row.turn - 1 else "branches"] += 1
            else:
                assert row.parent_turn is None
                kinds["shares nothing"] += 1
            prompts.append(mine)
    assert kinds["branches"] > 20
    assert kinds["shares nothing"] > len(busy)


def common(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    """Length of the common prefix of two prompts made of runs."""
    at = 0
    for (owner, end), (other_owner, other_end) in zip(one, other, strict=False):
        if owner != other_owner:
            return at
        at = min(end, other_end)
        if end != other_end:
            return at
    return at


def test_the_groups_of_roots_are_tools_and_system_prompt(busy: dict[str, list[CallRow]]) -> None:
    groups: dict[str | None, set[tuple[str | None, str | None]]] = defaultdict(set)
    for rows in busy.values():
        assert rows[0].group_id is not None
        assert 0 < (rows[0].group_tokens or 0) < rows[0].prompt_tokens
        groups[rows[0].group_id].add((rows[0].tool_schema_id, rows[0].system_id))
        assert all(row.group_id is None for row in rows[1:])
    assert all(len(members) == 1 for members in groups.values())
    assert len(groups) < len(busy)  # some are shared


def test_phases_say_what_an_output_is(busy: dict[str, list[CallRow]]) -> None:
    """Tool calls stand before tool results and nowhere else, reasoning comes first."""
    kinds: Counter[str] = Counter()
    for rows in busy.values():
        for row, following in pairwise(rows):
            assert row.phases is not None
            names = [phase.kind for phase in row.phases]
            assert min(phase.tokens for phase in row.phases) > 0
            assert "reasoning" not in names[1:]
            assert row.reasoning_tokens == sum(p.tokens for p in row.phases if p.kind == "reasoning")
            assert ("tool_json" in names) == (following.trigger != "user")
            kinds.update(names)
    assert set(kinds) == {"reasoning", "prose", "tool_json", "code", "recovery"}


def test_a_timeout_is_followed_by_recovery(busy: dict[str, list[CallRow]]) -> None:
    after = [row for rows in busy.values() for row in rows if row.tool_latency_s == 120.0]
    talking = [row.phases for row in after if row.phases and row.phases[0].kind not in ("tool_json", "code")]
    assert len(talking) > 3
    assert {phases[0].kind for phases in talking} == {"recovery"}


def test_a_snapshot_changes_when_a_file_was_edited(busy: dict[str, list[CallRow]]) -> None:
    changes = 0
    for rows in busy.values():
        for row, following in pairwise(rows):
            if following.snapshot_id != row.snapshot_id:
                assert following.tool_class == "edit"
                changes += 1
    assert changes > 100


# --- Sub-agents.


def test_a_parent_waits_for_the_sub_agents_it_started(busy: dict[str, list[CallRow]]) -> None:
    agents = {name: rows for name, rows in busy.items() if rows[0].trigger == "subagent"}
    joins = [(row, ref) for rows in busy.values() for row in rows for ref in row.after or ()]
    assert len(agents) > 30
    joined = set()
    for name, rows in agents.items():
        (start,) = rows[0].after or ()
        assert start.session_id == name.split(".")[0]
        assert rows[0].parent_session is None
        for row, ref in joins:
            if ref.session_id == name:
                assert ref.turn == rows[-1].turn
                assert row.session_id == start.session_id
                assert row.turn > start.turn
                assert row.after is not None
                assert row.after[0] == (row.session_id, row.turn - 1)
                assert row.tool_latency_s is None  # its wait is the sub-agent's own time
                joined.add((name, row.turn - start.turn))
    assert Counter(lag == 1 for _, lag in joined)[True] / len(agents) == pytest.approx(0.9, abs=0.08)
    assert any(lag > 1 for _, lag in joined)


# --- Repeatable.


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        path = command(output=tmp_path / name, sessions=8, seed=seed)
        files.append(path.read_bytes())
    assert files[0] == files[1]
    assert files[0] != files[2]


def test_more_sessions_leave_the_first_ones_as_they_were() -> None:
    few = list(generate(seed=11, sessions=5))
    assert few == list(islice(generate(seed=11, sessions=None, calls=10**6), len(few)))


@pytest.mark.parametrize(
    ("change", "touched"),
    [
        ({"recovery_share": 1.0}, {"phases", "reasoning_tokens"}),
        ({"tool_latency_s": quantiles("p0 0.05, p100 0.1")}, None),
        ({"max_output_tokens": 64_000}, {"max_output_tokens"}),
    ],
)
def test_what_one_part_draws_shifts_no_other(change: dict[str, object], touched: set[str] | None) -> None:
    touched = touched or {"tool_latency_s", "tool_class", "snapshot_id", "phases", "reasoning_tokens"}
    before = list(generate(SynthParams(), 2, 6))
    after = list(generate(replace(SynthParams(), **change), 2, 6))  # type: ignore[arg-type]
    differing = {
        name
        for one, other in zip(before, after, strict=True)
        for name in CallRow.__slots__
        if getattr(one, name) != getattr(other, name)
    }
    assert differing
    assert differing <= touched


# --- Scale.


def test_memory_does_not_grow_with_the_number_of_sessions() -> None:
    # All of one length, so that the longest session is no longer among many than among few.
    alike = tuple(replace(start, calls=quantiles("p0 40, p100 40")) for start in SynthParams().starts)

    def peak(sessions: int) -> int:
        tracemalloc.start()
        deque(generate(replace(SynthParams(), starts=alike), 1, sessions), maxlen=0)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(10)
    assert peak(80) < 1.25 * peak(20)


def test_rows_come_before_the_trace_is_finished() -> None:
    assert len(list(islice(generate(seed=1, sessions=1_000_000), 250))) == 250


@pytest.mark.parametrize("cap", [40_000, 120_000])
def test_a_cap_on_context_keeps_sessions_long(cap: int) -> None:
    free = by_session(generate(seed=6, sessions=60))
    capped = by_session(generate(replace(SynthParams(), context_cap_tokens=cap), 6, 60))
    assert sum(map(len, capped.values())) == pytest.approx(sum(map(len, free.values())), rel=0.1)
    prompts = [row.prompt_tokens for rows in capped.values() for row in rows]
    assert max(prompts) <= cap
    assert np.percentile(prompts, 95) > 0.6 * cap


def test_arrivals_are_a_poisson_process() -> None:
    rows = list(generate(seed=9, sessions=400, arrivals_rate=0.25))
    arrivals = [row.arrival_s for row in rows if row.arrival_s is not None]
    assert len(arrivals) == 400
    assert arrivals == sorted(arrivals)
    assert all(row.arrival_s is None or (row.turn == 0 and row.trigger != "subagent") for row in rows)
    gaps = np.diff(arrivals)
    assert gaps.mean() == pytest.approx(4.0, rel=0.15)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.15)  # exponential, not regular
    assert np.mean(gaps > 4.0) == pytest.approx(np.exp(-1), abs=0.06)


def test_calls_asks_for_exactly_that_many(tmp_path: Path) -> None:
    path = command(output=tmp_path / "t.parquet", calls=1234, seed=1)
    assert read_table(path).n == 1234
