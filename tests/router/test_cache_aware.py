"""Affinity to where a prefix was sent, as far as the load allows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from v4sim.prefix import PrefixIndex
from v4sim.router import Router
from v4sim.router.base import RouteRequest, Signals
from v4sim.router.policies import CacheAware
from v4traces import CallRow, TraceTable

MakeTrace = Callable[[Sequence[CallRow]], TraceTable]


def row(name: str, prompt: int, parent: str | None = None, shared: int = 0, **more: Any) -> CallRow:
    return CallRow(
        session_id=name,
        turn=0,
        parent_session=parent,
        parent_turn=None if parent is None else 0,
        shared_tokens=shared,
        prompt_tokens=prompt,
        output_tokens=10,
        **more,
    )


FAMILY = [
    row("root", 4096),
    row("same", 5000, "root", 4096),  # 82 % of it was sent before
    row("half", 8192, "root", 4096),  # exactly half, which is not more than half
    row("far", 9000, "root", 4096),
    row("stranger", 4096),
    row("child", 6000, "same", 5000),
]


def test_a_prompt_goes_where_more_than_half_of_it_was_sent(routers: Callable[..., Router]) -> None:
    router = routers("cache_aware", 4, FAMILY, cache_threshold=0.5)
    assert router.route(0, 0, 4096, 0) == 0
    assert router.route(1, 1, 5000, 0) == 0
    assert router.route(2, 2, 8192, 0) == 1  # fewest requests, lowest first
    assert router.route(3, 3, 9000, 0) == 2
    assert router.route(4, 4, 4096, 0) == 3


def test_a_match_is_a_prefix_of_what_was_a_prompt_not_of_what_was_answered(make_trace: MakeTrace) -> None:
    """A gateway has seen the parent's 1,000 tokens of prompt; its 3,000 of output only the engine knows."""
    rows = [
        CallRow(session_id="a", turn=0, prompt_tokens=1000, output_tokens=3000),
        CallRow(
            session_id="a",
            turn=1,
            parent_session="a",
            parent_turn=0,
            shared_tokens=1000,
            shared_output_tokens=3000,
            prompt_tokens=4500,
            output_tokens=5,
        ),
    ]
    signals = Signals(2)
    for threshold, chosen in ((0.2, 1), (0.3, 0)):
        policy = CacheAware(PrefixIndex(make_trace(rows), 256), threshold, 32, 1.1, "active_work")
        signals.requests[:] = [5, 0]
        assert policy.choose(RouteRequest(0, 0, 1000), signals, 0) == 1
        signals.requests[:] = [0, 5]
        assert policy.choose(RouteRequest(1, 0, 4500), signals, 0) == chosen


def test_a_shorter_branch_sent_elsewhere_does_not_take_the_longer_one_along(
    make_trace: MakeTrace,
) -> None:
    rows = [row("root", 8192), row("branch", 2000, "root", 1024), row("resume", 9000, "root", 8192)]
    policy = CacheAware(PrefixIndex(make_trace(rows), 256), 0.5, 32, 1.1, "active_work")
    signals = Signals(2)
    assert policy.choose(RouteRequest(0, 0, 8192), signals, 0) == 0
    signals.requests[:] = [40, 0]
    assert policy.choose(RouteRequest(1, 1, 2000), signals, 0) == 1
    signals.requests[:] = [1, 0]
    assert policy.choose(RouteRequest(2, 0, 9000), signals, 0) == 0


@pytest.mark.parametrize(
    ("loads", "affine"),
    [
        ([32, 0], True),  # the difference must exceed 32 …
        ([33, 0], False),
        ([440, 400], True),  # … and the ratio 1.1
        ([441, 400], False),
    ],
)
def test_affinity_ends_where_both_bounds_are_passed(
    make_trace: MakeTrace, loads: list[int], affine: bool
) -> None:
    policy = CacheAware(PrefixIndex(make_trace(FAMILY), 256), 0.5, 32, 1.1, "active_work")
    signals = Signals(2)
    assert policy.choose(RouteRequest(0, 0, 4096), signals, 0) == 0
    signals.requests[:] = loads
    assert policy.choose(RouteRequest(1, 1, 5000), signals, 0) == (0 if affine else 1)


def test_where_balance_sends_a_call_its_prefix_is_remembered_too(make_trace: MakeTrace) -> None:
    policy = CacheAware(PrefixIndex(make_trace(FAMILY), 256), 0.5, 0, 1.0, "active_work")
    signals = Signals(2)
    policy.choose(RouteRequest(0, 0, 4096), signals, 0)
    signals.requests[:] = [1, 0]
    assert policy.choose(RouteRequest(1, 1, 5000), signals, 0) == 1
    signals.requests[:] = [0, 0]
    assert policy.choose(RouteRequest(5, 1, 6000), signals, 0) == 1


def test_groups_are_prefixes_of_all_their_members(routers: Callable[..., Router]) -> None:
    rows = [row(f"s{i}", 1000, group_id="g", group_tokens=768) for i in range(3)]
    rows.append(row("other", 4000, group_id="g", group_tokens=768))
    router = routers("cache_aware", 4, rows)
    assert [router.route(i, i, rows[i].prompt_tokens, 0) for i in range(4)] == [0, 0, 0, 1]
