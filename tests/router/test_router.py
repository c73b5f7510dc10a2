"""The law of each policy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.errors import ConfigError
from v4sim.router import Router
from v4sim.router.base import RouteRequest, Signals
from v4sim.router.front_end import server_of
from v4sim.router.policies import FrontEnds, LeastTokens, Rendezvous

MS = 1_000_000
PERIOD_NS = 20 * MS


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
