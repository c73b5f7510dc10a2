"""The routing policies, smallest first.

round_robin     next target in turn; the default inside SGLang's DP controller
least_requests  fewest requests in flight (SGLang `total_requests`)
least_tokens    fewest prompt tokens, in flight or resident (SGLang `total_tokens`)
sticky          where the session was before; a new session goes to the fewest requests
rendezvous      highest hash of (session, target) among targets within `load_factor` of the mean,
                long sessions judged by the resident tokens of others, short ones by work in flight
front_ends      vLLM's DP balancing: several front ends, each blind to what the others send
cache_aware     where most of the prompt was sent before, unless load is unbalanced (SGLang gateway)
"""

from __future__ import annotations

import math

from v4sim import streams
from v4sim.prefix import NO_PARENT, PrefixIndex
from v4sim.router.base import RouteRequest, Signals, least
from v4sim.router.front_end import server_of

LONG_PROMPT_TOKENS = 131_072


class RoundRobin:
    def __init__(self, targets: int) -> None:
        self._targets = targets
        self._next = 0

    def choose(self, request: RouteRequest, signals: Signals, now_ns: int) -> int:
        chosen = self._next
        self._next = (chosen + 1) % self._targets
        return chosen


class LeastRequests:
    def choose(self, request: RouteRequest, signals: Signals, now_ns: int) -> int:
        return least(signals.requests)


class FrontEnds:
    """vLLM's internal balancing over DP ranks (`v1/engine/core_client.py`, DPLBAsyncMPClient).

    Every front end takes the rank with the fewest requests, and adds its own calls at once, weighted by the
    number of front ends; what others sent it learns with the next published counts. It scans from a place
    that moves on by one with every call, so ties are broken in turn. Where that place is when a run begins
    depends on all that was sent before: it is drawn. So calls that start together collide.
    """

    def __init__(self, targets: int, servers: int, seed: int) -> None:
        self._seed = seed
        self._taken_ns = -1
        self._published = [0] * targets
        self._own = [[0] * targets for _ in range(servers)]
        luck = (streams.uniform(streams.mix(seed, streams.ROUTING), server) for server in range(servers))
        self._start = [int(u * targets) for u in luck]

    def choose(self, request: RouteRequest, signals: Signals, now_ns: int) -> int:
        servers, targets = len(self._own), len(self._published)
        if signals.taken_ns != self._taken_ns:
            self._taken_ns = signals.taken_ns
            self._published = list(signals.requests)
            self._own = [[0] * targets for _ in range(servers)]
        server = server_of(self._seed, request.uid, servers)
        own, start = self._own[server], self._start[server]
        order = [(start + i) % targets for i in range(targets)]
        chosen = min(order, key=lambda i: self._published[i] + own[i])
        own[chosen] += servers
        self._start[server] = (start + 1) % targets
        return chosen


class LeastTokens:
    def __init__(self, load_signal: str) -> None:
        self._load_signal = load_signal

    def choose(self, request: RouteRequest, signals: Signals, now_ns: int) -> int:
        loads = signals.load(self._load_signal)
        return min(range(len(loads)), key=lambda i: (loads[i], signals.requests[i], i))


class Sticky:
    """A session stays where it began."""

    def __init__(self) -> None:
        self._home: dict[int, int] = {}

    def choose(self, request: RouteRequest, signals: Signals, now_ns: int) -> int:
        home = self._home.get(request.session)
        if home is None:
            home = min(
                range(len(signals.requests)), key=lambda i: (signals.requests[i], signals.resident[i], i)
            )
            self._home[request.session] = home
        return home


class Rendezvous:
    """Bounded-load rendezvous hashing: affinity without memory, moved only by overload."""

    def __init__(self, load_factor: float, seed: int) -> None:
        self._load_factor = load_factor
        self._seed = seed

    def choose(self, request: RouteRequest, signals: Signals, now_ns: int) -> int:
        is_long = request.prompt_tokens >= LONG_PROMPT_TOKENS
        loads = list(signals.resident if is_long else signals.requests)
        added = request.prompt_tokens if is_long else 1
        if is_long and request.home >= 0:
            # A session's own history is no reason to leave it.
            loads[request.home] = max(0, loads[request.home] - request.home_tokens)
        bound = math.ceil(self._load_factor * (sum(loads) + added) / len(loads))
        open_targets = [i for i, load in enumerate(loads) if load + added <= bound]
        # A session longer than any target's share fits nowhere: it goes where the load is least.
        least_loaded = [i for i, load in enumerate(loads) if load == min(loads)]
        return max(
            open_targets or least_loaded,
            key=lambda i: (streams.mix(self._seed, streams.ROUTING, request.session, i), -i),
        )


class CacheAware:
    """Prefix affinity with bounded load, after sgl-model-gateway's `cache_aware`.

    Prompts that were sent somewhere are remembered by content, without feedback from the engine's
    evictions. The guard against imbalance looks at requests in flight; with `resident_tokens` it takes
    history for load, as guards do that drive a long session out of its own cache (sglang#31170).
    """

    def __init__(
        self, prefixes: PrefixIndex, threshold: float, balance_abs: int, balance_rel: float, load_signal: str
    ) -> None:
        self._prefixes = prefixes
        self._threshold = threshold
        self._balance_abs = balance_abs
        self._balance_rel = balance_rel
        self._by_history = load_signal == "resident_tokens"
        self._sent: dict[int, tuple[int, int]] = {}  # content -> target, tokens of it in prompts so far

    def choose(self, request: RouteRequest, signals: Signals, now_ns: int) -> int:
        loads = signals.resident if self._by_history else signals.requests
        ties = signals.requests if self._by_history else signals.tokens
        chosen = min(range(len(loads)), key=lambda i: (loads[i], ties[i], i))
        high, low = max(loads), loads[chosen]
        if not (high - low > self._balance_abs and high > self._balance_rel * low):
            matched, target = self._match(request)
            if matched > self._threshold * request.prompt_tokens:
                chosen = target
        self._remember(request, chosen)
        return chosen

    def _match(self, request: RouteRequest) -> tuple[int, int]:
        """Tokens of the longest prefix that was in a prompt before, and where that went last."""
        limit, uid = request.prompt_tokens, request.uid
        while uid != NO_PARENT:
            start = self._prefixes.start(uid)
            target, known = self._sent.get(uid, (-1, 0))
            if known > start:
                return min(limit, known), target
            limit = min(limit, start)
            uid = self._prefixes.parent(uid)
        return 0, -1

    def _remember(self, request: RouteRequest, target: int) -> None:
        tokens, uid = request.prompt_tokens, request.uid
        while uid != NO_PARENT:
            before, known = self._sent.get(uid, (-1, 0))
            if before == target and known >= tokens:
                return
            if tokens >= known:  # a shorter branch that went elsewhere does not move the longer one
                self._sent[uid] = (target, tokens)
            tokens = min(tokens, self._prefixes.start(uid))
            uid = self._prefixes.parent(uid)
