"""Routers: a policy per name, and the `Router` that keeps its signals fresh."""

from __future__ import annotations

from collections.abc import Callable

from v4sim.errors import ConfigError
from v4sim.prefix import PrefixIndex
from v4sim.router.base import Policy, RouteRequest, Signals, Target
from v4sim.router.policies import (
    CacheAware,
    FrontEnds,
    LeastRequests,
    LeastTokens,
    Rendezvous,
    RoundRobin,
    Sticky,
)
from v4sim.router.router import Router, RouterOptions

_POLICIES: dict[str, Callable[[RouterOptions, PrefixIndex, int, int], Policy]] = {
    "round_robin": lambda options, prefixes, targets, seed: RoundRobin(targets),
    "least_requests": lambda options, prefixes, targets, seed: LeastRequests(),
    "front_ends": lambda options, prefixes, targets, seed: FrontEnds(targets, options.front_ends, seed),
    "least_tokens": lambda options, prefixes, targets, seed: LeastTokens(options.load_signal),
    "sticky": lambda options, prefixes, targets, seed: Sticky(),
    "rendezvous": lambda options, prefixes, targets, seed: Rendezvous(options.load_factor, seed),
    "cache_aware": lambda options, prefixes, targets, seed: CacheAware(
        prefixes, options.cache_threshold, options.balance_abs, options.balance_rel, options.load_signal
    ),
}


def make_router(options: RouterOptions, prefixes: PrefixIndex, targets: list[Target], seed: int) -> Router:
    """The router named by `options.policy` over these targets."""
    try:
        build = _POLICIES[options.policy]
    except KeyError:
        raise ConfigError(
            f"router.policy {options.policy!r} is unknown; choose one of {', '.join(sorted(_POLICIES))}"
        ) from None
    return Router(build(options, prefixes, len(targets), seed), targets, options.signal_period_ns)


__all__ = ["Policy", "RouteRequest", "Router", "RouterOptions", "Signals", "Target", "make_router"]
