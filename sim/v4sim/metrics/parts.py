"""Where step time went, and the gaps between tokens: `step_ms`, `itl_*`, `parts_s`, `speculation`.

Totals of a stretch of engine time come from `EpochRecorder` or, for the whole run, from the result
itself. Two forms of inter-token time: *burst*, the gap a client sees between two arrivals of tokens, and
*divided*, that gap shared out over the tokens that arrived with it, so that both sum to the same time.
Units: `_s` seconds, `_ms` milliseconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from v4sim.cost.base import PARTS
from v4sim.metrics.calls import Bools, Calls
from v4sim.metrics.dist import of_histogram
from v4sim.metrics.epochs import EngineTotals
from v4sim.results import STEP_KINDS, RunResult


def step_entries(totals: EngineTotals) -> dict[str, Any]:
    """`step_ms`, `itl_burst_ms`, `itl_ms`, `parts_s` and `parts_by_kind_s`."""
    by_kind_ns = {
        kind: dict(zip(PARTS, totals.steps.parts_ns[kind].tolist(), strict=True)) for kind in STEP_KINDS
    }
    return {
        "step_ms": {kind: of_histogram(totals.steps.durations[kind]) for kind in STEP_KINDS},
        "itl_burst_ms": of_histogram(totals.itl_burst),
        "itl_ms": of_histogram(totals.itl_divided),
        "parts_s": {part: sum(ns[part] for ns in by_kind_ns.values()) / 1e9 for part in PARTS},
        "parts_by_kind_s": {
            kind: {part: ns / 1e9 for part, ns in parts.items()} for kind, parts in by_kind_ns.items()
        },
    }


def whole_run(result: RunResult) -> EngineTotals:
    """The totals that a result states, where no epochs were recorded."""
    ranks = len(result.ranks) // result.num_replicas
    busy = np.array([rank.busy_ns for rank in result.ranks], dtype=np.int64).reshape(-1, ranks)
    mixed = [block for block in result.blocks if block[3] == "mixed"]
    tokens = sum(block[5] for block in mixed), sum(block[4] for block in mixed)
    return EngineTotals(0, result.end_ns, result.steps, result.itl_burst, result.itl_divided, busy, tokens)


def idle_share(totals: EngineTotals, replicas: int) -> float | None:
    """Part of the replicas' time in which they did not step; None over no time."""
    available = totals.length_ns * replicas
    return max(0.0, 1.0 - totals.steps.total_ns / available) if available > 0 else None


def speculation_entry(
    calls: Calls, counted: Bools, result: RunResult, kind: str, draft_tokens: int
) -> dict[str, Any]:
    """The `speculation` entry; acceptance by phase and position is that of the whole run."""
    drafts = draft_tokens if kind != "off" else 0
    entry: dict[str, Any] = {"kind": kind, "draft_tokens": drafts, "by_phase": {}}
    if not drafts:
        return entry
    done = counted & calls.completed & (calls["verify_steps"] > 0)
    steps = int(calls["verify_steps"][done].sum())
    if steps:
        # Tokens per verify step, the one that needs no draft included.
        entry["mean_accepted_length"] = int((calls["output_tokens"][done] - 1).sum()) / steps
    for phase, (offered, accepted) in sorted(result.acceptance.items()):
        rates = [taken / asked if asked else None for asked, taken in zip(offered, accepted, strict=True)]
        entry["by_phase"][phase] = {"offered": list(offered), "accepted": list(accepted), "rate": rates}
    return entry
