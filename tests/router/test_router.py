"""What a router sees and when, and the law of each policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.errors import ConfigError
from v4sim.prefix import PrefixIndex
from v4sim.router import Router, RouterOptions, Target, make_router
from v4sim.router.base import RouteRequest, Signals
from v4sim.router.front_end import server_of
from v4sim.router.policies import CacheAware, FrontEnds, LeastTokens, Rendezvous
from v4traces import CallRow, TraceTable

MakeTrace = Callable[[Sequence[CallRow]], TraceTable]
MS = 1_000_000
PERIOD_NS = 20 * MS


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


@pytest.fixture(scope="module")
def routers(make_trace: MakeTrace) -> Callable[..., Router]:
    """A router of a policy over targets; content ids are the rows of the trace, if it matters."""
    nothing_shared = PrefixIndex(make_trace([row("only", 100)]), 256)

    def make(policy: str, targets: int = 4, rows: Sequence[CallRow] = (), **options: Any) -> Router:
        seed = options.pop("seed", 0)
        prefixes = PrefixIndex(make_trace(rows), 256) if rows else nothing_shared
        options.setdefault("signal_period_ns", PERIOD_NS)
        places = [Target(0, rank) for rank in range(targets)]
        return make_router(RouterOptions(policy, **options), prefixes, places, seed)

    return make


class Recorder:
    """A policy that sends everything to one place and keeps what it was shown."""

    def __init__(self, place: int = 0) -> None:
        self.place = place
        self.seen: list[tuple[int, list[int], list[int], list[int]]] = []
        self.requests: list[RouteRequest] = []

    def choose(self, request: RouteRequest, signals: Signals, now_ns: int) -> int:
        self.requests.append(request)
        self.seen.append(
            (signals.taken_ns, list(signals.requests), list(signals.tokens), list(signals.resident))
        )
        return self.place


# -- signals --------------------------------------------------------------------------------------


def test_a_snapshot_is_taken_once_per_period_and_own_sends_are_added_between() -> None:
    policy = Recorder()
    router = Router(policy, [Target(0, 0), Target(0, 1)], PERIOD_NS)
    for at_ms, tokens in ((0, 100), (5, 200), (19, 300)):
        router.route(0, at_ms, tokens, at_ms * MS)
    router.done(0, 100)  # at 19 ms: not seen before the next snapshot
    router.route(0, 91, 400, 19_999_999)
    router.route(0, 92, 500, 20 * MS)
    assert [seen[0] for seen in policy.seen] == [0, 0, 0, 0, 20 * MS]
    assert [seen[1][0] for seen in policy.seen] == [0, 1, 2, 3, 3]
    assert [seen[2][0] for seen in policy.seen] == [0, 100, 300, 600, 900]


def test_a_period_of_zero_shows_the_present() -> None:
    policy = Recorder()
    router = Router(policy, [Target(0, 0)], 0)
    router.route(0, 1, 100, 5)
    router.done(0, 100)
    router.route(0, 2, 100, 5)
    assert [seen[1] for seen in policy.seen] == [[0], [0]]


def test_the_next_snapshot_is_a_period_after_the_last_one_was_used() -> None:
    policy = Recorder()
    router = Router(policy, [Target(0, 0)], PERIOD_NS)
    for at_ms in (0, 33, 40, 53, 60):
        router.route(0, at_ms, 1, at_ms * MS)
    assert [seen[0] // MS for seen in policy.seen] == [0, 33, 33, 53, 53]


def test_resident_tokens_are_those_of_each_sessions_last_call_where_it_went() -> None:
    policy = Recorder()
    router = Router(policy, [Target(0, 0), Target(0, 1)], 0)
    router.route(0, 7, 100, 0)
    router.done(0, 100)
    router.route(1, 7, 150, 1)  # grows in place
    router.route(2, 8, 50, 2)
    policy.place = 1
    router.route(3, 7, 200, 3)  # moves
    router.route(4, 9, 1, 4)
    assert [seen[3] for seen in policy.seen] == [[0, 0], [100, 0], [150, 0], [200, 0], [50, 200]]
    assert [(r.home, r.home_tokens) for r in policy.requests] == [
        (-1, 0),
        (0, 100),
        (-1, 0),
        (0, 150),
        (-1, 0),
    ]


@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 500), st.booleans()), max_size=40),
    period=st.sampled_from([0, 3, 10]),
)
def test_what_is_shown_is_a_snapshot_of_the_truth_plus_own_sends(
    steps: list[tuple[int, int, bool]], period: int
) -> None:
    policy = Recorder()
    router = Router(policy, [Target(0, i) for i in range(4)], period)
    truth = [0] * 4
    shown, taken = [0] * 4, None
    running: list[tuple[int, int]] = []
    for now, (place, tokens, ends) in enumerate(steps):
        if ends and running:
            target, sent = running.pop(0)
            router.done(target, sent)
            truth[target] -= 1
        policy.place = place
        if taken is None or now - taken >= period:
            shown, taken = list(truth), now
        router.route(now, now, tokens, now)
        assert policy.seen[-1][1] == shown
        running.append((place, tokens))
        truth[place] += 1
        shown[place] += 1


# -- policies -------------------------------------------------------------------------------------


def test_round_robin_goes_round(routers: Callable[..., Router]) -> None:
    router = routers("round_robin", 3)
    assert [router.route(0, s, 10**s, 0) for s in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_least_requests_fills_the_emptiest_lowest_first(routers: Callable[..., Router]) -> None:
    router = routers("least_requests", 3, signal_period_ns=0)
    assert [router.route(0, s, 1, 0) for s in range(4)] == [0, 1, 2, 0]
    router.done(1, 1)
    assert router.route(0, 9, 1, 1) == 1


def test_least_requests_is_blind_to_ends_between_snapshots(routers: Callable[..., Router]) -> None:
    router = routers("least_requests", 2)
    assert [router.route(0, s, 1, 0) for s in range(2)] == [0, 1]
    router.done(1, 1)
    assert router.route(0, 9, 1, 10 * MS) == 0  # both seem to have one
    assert router.route(0, 10, 1, 20 * MS) == 1


@pytest.mark.parametrize(("signal", "chosen"), [("active_work", 1), ("resident_tokens", 2)])
def test_least_tokens_by_what_is_in_flight_or_by_what_is_resident(signal: str, chosen: int) -> None:
    signals = Signals(3)
    signals.requests[:], signals.tokens[:], signals.resident[:] = [1, 1, 1], [50, 10, 90], [500, 900, 100]
    assert LeastTokens(signal).choose(RouteRequest(0, 0, 10), signals, 0) == chosen


def test_least_tokens_breaks_ties_by_requests() -> None:
    signals = Signals(3)
    signals.requests[:], signals.tokens[:] = [4, 2, 2], [10, 10, 10]
    assert LeastTokens("active_work").choose(RouteRequest(0, 0, 10), signals, 0) == 1


@given(moves=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 900_000)), max_size=60))
def test_sticky_never_moves_a_session(routers: Callable[..., Router], moves: list[tuple[int, int]]) -> None:
    router = routers("sticky", 4)
    home: dict[int, int] = {}
    for now, (session, tokens) in enumerate(moves):
        target = router.route(0, session, tokens, now * PERIOD_NS)
        assert home.setdefault(session, target) == target


def test_sticky_starts_a_session_where_the_fewest_requests_are(routers: Callable[..., Router]) -> None:
    router = routers("sticky", 3)
    assert [router.route(0, session, 1, 0) for session in (5, 6, 7)] == [0, 1, 2]
    # All three have ended; history decides then, and rank 1 has the least.
    for target in range(3):
        router.done(target, 1)
    for session, tokens in ((5, 800), (6, 200), (7, 500)):
        router.done(router.route(0, session, tokens, 100 * MS), tokens)
    assert router.route(0, 8, 1, 200 * MS) == 1


def test_rendezvous_needs_no_memory_and_moves_few_sessions_when_a_target_joins() -> None:
    """The same session goes to the same place; one more target takes its share, from everywhere."""
    few, more = Signals(4), Signals(5)
    policy = Rendezvous(1e9, seed=1)

    def place(session: int, signals: Signals) -> int:
        return policy.choose(RouteRequest(0, session, 10), signals, 0)

    before = [place(s, few) for s in range(2000)]
    assert before == [place(s, few) for s in range(2000)]
    after = [place(s, more) for s in range(2000)]
    moved = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert {b for _, b in moved} == {4}
    # A fifth moves; binomial with four deviations.
    assert len(moved) == pytest.approx(400, abs=4 * np.sqrt(2000 * 0.2 * 0.8))
    assert np.bincount(before).min() > 500 - 4 * np.sqrt(2000 * 0.25 * 0.75)


@given(
    sessions=st.lists(st.integers(0, 50), min_size=1, max_size=80),
    factor=st.sampled_from([1.0, 1.25, 2.0]),
    targets=st.integers(1, 6),
)
def test_rendezvous_keeps_within_the_bound_while_anybody_is(
    routers: Callable[..., Router], sessions: list[int], factor: float, targets: int
) -> None:
    """No target gets more than ⌈factor · requests/targets⌉ in flight."""
    router = routers("rendezvous", targets, signal_period_ns=0, load_factor=factor)
    loads = [0] * targets
    for session in sessions:
        target = router.route(0, session, 10, 0)
        loads[target] += 1
        assert loads[target] <= math.ceil(factor * sum(loads) / targets)


def test_a_long_sessions_own_history_does_not_drive_it_away() -> None:
    """Others' 800k elsewhere or its own 800k at home: only the former count."""
    policy = Rendezvous(1.25, seed=0)
    home = policy.choose(RouteRequest(0, 5, 800_000), Signals(4), 0)
    own, others = Signals(4), Signals(4)
    own.resident[:] = [200_000] * 4
    own.resident[home] = 800_000
    back = RouteRequest(1, 5, 801_000, home, 800_000)
    assert policy.choose(back, own, 0) == home
    others.resident[:] = [0] * 4
    others.resident[home] = 4_000_000
    assert policy.choose(RouteRequest(1, 5, 801_000, home, 0), others, 0) != home


def test_front_ends_see_their_own_sends_weighted_and_others_when_published() -> None:
    """vLLM: every front end goes round the ranks from a place of its own and adds its calls × front ends."""
    policy = FrontEnds(4, 3, seed=0)
    signals = Signals(4)
    signals.taken_ns = 0
    sent: dict[int, list[int]] = {}
    for uid in range(40):
        chosen = policy.choose(RouteRequest(uid, uid, 10), signals, 0)
        sent.setdefault(server_of(0, uid, 3), []).append(chosen)
    assert sorted(sent) == [0, 1, 2]
    for targets in sent.values():
        assert targets == [(targets[0] + i) % 4 for i in range(len(targets))]
    # With new counts they forget their own and avoid the busy ranks, wherever they begin.
    signals.taken_ns, signals.requests[:] = 100, [9, 0, 9, 9]
    assert policy.choose(RouteRequest(100, 0, 10), signals, 100) == 1


@given(st.integers(0, 20))
def test_a_front_end_alone_spreads_evenly_whatever_is_published(seed: int) -> None:
    """Ties are broken in turn, so one front end whose counts are reset at every call still goes round."""
    policy, signals = FrontEnds(4, 1, seed=seed), Signals(4)
    chosen = []
    for uid in range(12):
        signals.taken_ns = uid  # published anew, and the engines have reported nothing yet
        chosen.append(policy.choose(RouteRequest(uid, uid, 10), signals, uid))
    assert chosen == [(chosen[0] + i) % 4 for i in range(12)]


def test_an_unknown_policy_names_the_known_ones(routers: Callable[..., Router]) -> None:
    with pytest.raises(ConfigError, match=r"cache_aware.*round_robin.*sticky"):
        routers("random")


# -- cache aware ----------------------------------------------------------------------------------

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
