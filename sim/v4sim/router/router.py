"""Keeps a routing policy's signals: true counts behind, a snapshot with its own increments in front."""

from __future__ import annotations

from dataclasses import dataclass

from v4sim.router.base import Policy, RouteRequest, Signals, Target


@dataclass(frozen=True, slots=True)
class RouterOptions:
    policy: str
    cache_threshold: float = 0.5
    balance_abs: int = 32
    balance_rel: float = 1.1
    load_factor: float = 1.25
    load_signal: str = "active_work"
    signal_period_ns: int = 20_000_000
    front_ends: int = 1


class Router:
    """Routes calls and is told when they end; all its state is its own book-keeping.

    A snapshot of the true counts is taken at most once per period; until the next one the router
    adds what it sends itself and does not see what finishes.
    """

    def __init__(self, policy: Policy, targets: list[Target], period_ns: int) -> None:
        self.policy = policy
        self.targets = targets
        self._period_ns = period_ns
        self._truth = Signals(len(targets))
        self._seen = Signals(len(targets))
        self._home: dict[int, tuple[int, int]] = {}  # session -> (target, tokens counted there)

    def route(self, uid: int, session: int, prompt_tokens: int, now_ns: int) -> int:
        """Choose a target (index) for a call and count it there."""
        seen, truth = self._seen, self._truth
        if seen.taken_ns < 0 or now_ns - seen.taken_ns >= self._period_ns:
            seen.taken_ns = now_ns
            seen.requests[:] = truth.requests
            seen.tokens[:] = truth.tokens
            seen.resident[:] = truth.resident
        known = self._home.get(session)
        home, home_tokens = known or (-1, 0)
        request = RouteRequest(uid, session, prompt_tokens, home, home_tokens)
        chosen = self.policy.choose(request, seen, now_ns)
        for signals in (seen, truth):
            signals.requests[chosen] += 1
            signals.tokens[chosen] += prompt_tokens
        if known is not None:
            truth.resident[known[0]] -= known[1]
        truth.resident[chosen] += prompt_tokens
        seen.resident[chosen] += prompt_tokens - (known[1] if known is not None and known[0] == chosen else 0)
        self._home[session] = (chosen, prompt_tokens)
        return chosen

    def done(self, target: int, prompt_tokens: int) -> None:
        self._truth.requests[target] -= 1
        self._truth.tokens[target] -= prompt_tokens
