"""What a router sees, and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from v4sim.router import Router, Target
from v4sim.router.base import RouteRequest, Signals

MS = 1_000_000
PERIOD_NS = 20 * MS


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
