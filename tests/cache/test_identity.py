"""Cache keys beyond tokens: who shares with whom, held against plain lists of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v4sim import config
from v4sim.errors import ConfigError
from v4sim.identity import IDS, identify, keyed, stated_ids
from v4sim.prefix import PrefixIndex
from v4sim.workload import WorkloadOptions
from v4traces import CallRow, TraceTable

PAGE = 256
Make = Callable[[Sequence[CallRow]], TraceTable]


@dataclass
class Texts:
    """A made-up trace with the tokens of every call written out."""

    prompts: list[list[tuple[int, int]]] = field(default_factory=list)
    outputs: list[list[tuple[int, int]]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    rows: list[CallRow] = field(default_factory=list)

    def add(
        self, base: int | None, keep: int, fresh: int, output: int, key: str | None, returns: bool
    ) -> None:
        """A call that repeats `keep` tokens of call `base`, or of a common prefix (None)."""
        number = len(self.rows)
        source = [(-1, i) for i in range(300)] if base is None else list(self.prompts[base])
        if returns and base is not None:
            source += self.outputs[base]
        prompt = source[:keep] + [(number, i) for i in range(fresh)]
        parent, shared, returned = self._longest(prompt)
        prefix = common(prompt, [(-1, i) for i in range(300)]) if parent is None else 0
        self.rows.append(
            CallRow(
                session_id=f"s{number}",
                turn=0,
                parent_session=f"s{parent}" if parent is not None else None,
                parent_turn=0 if parent is not None else None,
                shared_tokens=shared,
                shared_output_tokens=returned or None,
                group_id="g" if prefix else None,
                group_tokens=prefix or None,
                prompt_tokens=len(prompt),
                output_tokens=output,
                snapshot_id=key,
            )
        )
        self.prompts.append(prompt)
        self.outputs.append([(-2 - number, i) for i in range(output)])
        self.keys.append(key)

    def _longest(self, prompt: list[tuple[int, int]]) -> tuple[int | None, int, int]:
        """The earlier call with the longest common prefix, unless a group's prefix is all there is of it."""
        best: tuple[int | None, int, int] = (None, 0, 0)
        for number, other in enumerate(self.prompts):
            length = common(prompt, other + self.outputs[number])
            own = sum(1 for token in prompt[:length] if token[0] != -1)
            if own and length > best[1] + best[2]:
                best = (number, min(length, len(other)), max(0, length - len(other)))
        return best

    def bound(self, row: int) -> int:
        """The longest prefix that an earlier prompt of the same key has."""
        alike = [other for other in range(row) if self.keys[other] == self.keys[row]]
        return max((common(self.prompts[row], self.prompts[other]) for other in alike), default=0)


def common(first: Sequence[object], second: Sequence[object]) -> int:
    length = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        length += 1
    return length


def in_index(index: PrefixIndex, first: int, second: int, upto: int) -> int:
    """How many leading tokens two contents share in an index: as long as their spans have one owner."""
    found = 0
    for (owner, end), (other, other_end) in zip(
        index.segments(first, 0, upto), index.segments(second, 0, upto), strict=False
    ):
        if owner != other:
            break
        found = min(end, other_end)
        if end != other_end:
            break
    return found


CALLS = st.lists(
    st.tuples(
        st.integers(-1, 11),  # which earlier call, or the common prefix
        st.integers(0, 40),
        st.integers(1, 12),
        st.integers(1, 6),
        st.sampled_from(["a", "b", "c", None]),
    ),
    min_size=2,
    max_size=12,
)


def written(calls: Sequence[tuple[int, int, int, int, str | None]], *, returns: bool) -> Texts:
    texts = Texts()
    for base, keep, fresh, output, key in calls:
        chosen = None if base < 0 or not texts.rows else base % len(texts.rows)
        texts.add(chosen, keep, fresh, output, key, returns)
    return texts


@settings(max_examples=150)
@given(CALLS)
def test_an_endless_cache_serves_what_calls_of_one_key_share(make_trace: Make, calls: list) -> None:
    """Without outputs that return: a trace's bound does not count those."""
    texts = written(calls, returns=False)
    table = make_trace(texts.rows)
    if not stated_ids(table):
        return
    found = keyed(table, ["snapshot_id"]).bound_tokens().tolist()
    assert found == [texts.bound(row) for row in range(table.n)]


@settings(max_examples=150)
@given(CALLS)
def test_contents_meet_where_tokens_and_keys_are_the_same(make_trace: Make, calls: list) -> None:
    texts = written(calls, returns=True)
    table = make_trace(texts.rows)
    if not stated_ids(table):
        return
    index = PrefixIndex(identify(table, ["snapshot_id"]).content, 1)
    for row in range(table.n):
        for other in range(row):
            sizes = [table.prompt_tokens[i] + table.output_tokens[i] for i in (row, other)]
            contents = [texts.prompts[i] + texts.outputs[i] for i in (row, other)]
            alike = common(*contents) if texts.keys[row] == texts.keys[other] else 0
            assert in_index(index, row, other, int(min(sizes))) == alike, (row, other)


def agent(keys: Sequence[str | None], **ids: str) -> list[CallRow]:
    """One session that grows by two pages a turn, with these snapshots."""
    return [
        CallRow(
            session_id="s",
            turn=turn,
            parent_session="s" if turn else None,
            parent_turn=turn - 1 if turn else None,
            shared_tokens=PAGE * 2 * turn,
            prompt_tokens=PAGE * 2 * (turn + 1),
            output_tokens=8,
            snapshot_id=key,
            **ids,
        )
        for turn, key in enumerate(keys)
    ]


@pytest.mark.parametrize(
    ("policy", "hits", "stale"),
    [
        ([], [0, 512, 1024, 1536], [0, 0, 1024, 0]),
        (["snapshot_id"], [0, 512, 0, 1536], [0, 0, 1024, 0]),
    ],
)
def test_the_policy_decides_whether_stale_tokens_are_served(
    simulate_rows: Callable[..., object], policy: list[str], hits: list[int], stale: list[int]
) -> None:
    rows = agent(["old", "old", "new", "new"])
    sets = [f"cache.identity={policy}"]
    result = simulate_rows(rows, sets=sets, workload=WorkloadOptions(sessions=1))
    assert result.calls["hit_tokens"].tolist() == hits
    assert result.calls["stale_tokens"].tolist() == stale


def test_going_back_to_an_old_state_finds_what_it_left(simulate_rows: Callable[..., object]) -> None:
    """An edit that is undone: the third call continues what the first computed."""
    result = simulate_rows(
        agent(["old", "new", "old"]),
        sets=["cache.identity=['snapshot_id']"],
        workload=WorkloadOptions(sessions=1),
    )
    assert result.calls["hit_tokens"].tolist() == [0, 0, 512]
    assert result.calls["bound_tokens"].tolist() == [0, 0, 512]


def test_calls_that_branch_off_foreign_content_find_each_other(make_trace: Make) -> None:
    """Two calls of a new state that extend the same old call share what neither finds in the old one."""
    rows = agent(["old"])
    for name, shared in (("x", 500), ("y", 400), ("z", 450)):
        rows.append(
            CallRow(
                session_id=name,
                turn=0,
                parent_session="s",
                parent_turn=0,
                shared_tokens=shared,
                prompt_tokens=1000,
                output_tokens=5,
                snapshot_id="new",
            )
        )
    table = make_trace(rows)
    found = identify(table, ["snapshot_id"])
    assert found.bound_tokens.tolist() == [0, 0, 400, 450]
    assert found.stale_tokens.tolist() == [0, 500, 0, 0]
    assert found.content.n == table.n + 1  # one shadow, where they meet


def test_a_lonely_key_leaves_no_shadows(make_trace: Make) -> None:
    """A snapshot for every call, as an agent that edits all the time has: no more content than calls."""
    table = make_trace(agent([f"v{turn}" for turn in range(40)]))
    found = identify(table, ["snapshot_id"])
    assert found.content.n == table.n
    assert not found.bound_tokens.any()
    assert found.stale_tokens.tolist() == table.bound_tokens().tolist()


def test_without_ids_the_trace_is_the_content(make_trace: Make) -> None:
    table = make_trace(agent([None, None]))
    found = identify(table, [])
    assert found.content is table
    assert not found.stale_tokens.any()


def test_each_id_can_be_the_key(make_trace: Make) -> None:
    for name in IDS:
        rows = agent([None, None])
        first, second = (
            CallRow(**{**{f: getattr(row, f) for f in row.__dataclass_fields__}, name: value})
            for row, value in zip(rows, ("one", "two"), strict=True)
        )
        table = make_trace([first, second])
        assert stated_ids(table) == (name,)
        assert identify(table, [name]).bound_tokens.tolist() == [0, 0]
        assert identify(table, []).bound_tokens.tolist() == [0, 512]


def test_an_id_that_no_call_states_is_refused(make_trace: Make) -> None:
    table = make_trace(agent(["a", "b"]))
    with pytest.raises(ConfigError, match=r"names system_id, but no call of trace\.parquet states one"):
        identify(table, ["system_id"])


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (["cache.identity=['snapshot']"], "cache.identity.0 = 'snapshot'"),
        (["cache.identity=snapshot_id"], "a list"),
        (["cache.identity=['system_id','system_id']"], "system_id twice"),
        (["cache.identity=['system_id']", "engine.prefix_cache=false"], "no effect without"),
        (["cache.identity=['system_id']", "engine.kind=vllm", "engine.scheduler=vllm-native"], "not handed"),
    ],
)
def test_a_policy_that_is_none_is_refused(sets: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config.load("4xB200 V4-Flash DPA4+EP4 sglang", sets)
