"""How calls ended and what held them up: `calls` and `blocked`.

Waiting is told apart by its reason: for the host between sending and reaching the replica (`front_end`),
behind other calls (`queue`), or at the head of the queue with a resource short (`kv`, `swa`, `slots`,
`budget`), as the engine noted it per call.
Units: seconds of waiting, summed over calls.
"""

from __future__ import annotations

import numpy as np

from v4sim.metrics.calls import DONE, Bools, Calls

WAIT_REASONS = ("queue", "kv", "swa", "slots", "budget")


def calls_entry(calls: Calls, counted: Bools) -> dict[str, int]:
    """`injected` and one count per outcome, which sum to it."""
    ended = {name: int((counted & calls.done.equals(name)).sum()) for name in DONE}
    return {"injected": int(counted.sum()), **ended}


def blocked_entry(calls: Calls, counted: Bools) -> dict[str, dict[str, float]]:
    """Calls that waited, and how long, by reason; a reason that held nobody is left out."""
    found: dict[str, dict[str, float]] = {}
    reached = calls["queued_ns"] >= 0
    waits = {"front_end": np.where(reached, calls["queued_ns"] - calls["sent_ns"], 0)}
    waits |= {reason: calls[f"wait_{reason}_ns"] for reason in WAIT_REASONS}
    for reason, column in waits.items():
        waited = np.clip(column[counted], 0, None)
        held = int((waited > 0).sum())
        if held:
            found[reason] = {"calls": held, "time_s": float(waited.sum()) / 1e9}
    return found
