"""Routers of every policy over a few targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from v4sim.prefix import PrefixIndex
from v4sim.router import Router, RouterOptions, Target, make_router
from v4traces import CallRow, TraceTable

MakeTrace = Callable[[Sequence[CallRow]], TraceTable]
MS = 1_000_000
PERIOD_NS = 20 * MS


@pytest.fixture(scope="module")
def routers(make_trace: MakeTrace) -> Callable[..., Router]:
    """A router of a policy over targets; content ids are the rows of the trace, if it matters."""
    nothing_shared = PrefixIndex(
        make_trace([CallRow(session_id="only", turn=0, prompt_tokens=100, output_tokens=10)]), 256
    )

    def make(policy: str, targets: int = 4, rows: Sequence[CallRow] = (), **options: Any) -> Router:
        seed = options.pop("seed", 0)
        prefixes = PrefixIndex(make_trace(rows), 256) if rows else nothing_shared
        options.setdefault("signal_period_ns", PERIOD_NS)
        places = [Target(0, rank) for rank in range(targets)]
        return make_router(RouterOptions(policy, **options), prefixes, places, seed)

    return make
