"""Where prompt tokens came from, and how that compares with a cache that never forgets.

Every admitted call's prompt splits over device, host, storage and computed; the sums here keep that
equality exactly. Calls that were never admitted have no split and are not in these sums. Recomputed
tokens (retraction, preemption, SWA tails) are extra work on top of the prompt, never part of it.
`token_ratio` = hits / prompt. `bound_ratio` = what the trace allows / prompt (own text and groups;
outputs of earlier calls that return as input are not in the bound, so hits can exceed it where the trace
states such returns).
`lost_tokens` = what the bound had and the cache did not; `lost_moved_tokens` of it by calls that were
routed to another rank than the call they extend. `stale_tokens` = what token equality alone would share, but
the ids of the trace say is of another state (`v4sim.identity`); `stale_served_tokens` of it were hits.
Units: tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from v4sim.metrics.bootstrap import SessionBootstrap
from v4sim.metrics.calls import Bools, Calls, Int64s
from v4traces.table import TraceTable


def tokens(calls: Calls, counted: Bools) -> dict[str, int]:
    """The `tokens` entry. Output counts what was asked of completed calls."""
    admitted = counted & calls.admitted

    def total(name: str, chosen: Bools = admitted) -> int:
        return int(np.clip(calls[name][chosen], 0, None).sum())

    return {
        "prompt": total("prompt_tokens"),
        "device": total("hit_tokens"),
        "host": total("hit_host_tokens"),
        "storage": total("hit_storage_tokens"),
        "computed": total("computed_tokens"),
        "recomputed": total("recomputed_tokens"),
        "output": total("output_tokens", counted & calls.completed),
    }


def hits(
    calls: Calls, table: TraceTable, counted: Bools, bootstrap: SessionBootstrap | None
) -> dict[str, Any]:
    """The `hit` entry. Ratios are absent when nothing was admitted."""
    admitted = counted & calls.admitted
    hit = np.where(admitted, calls.hits_all_tiers, 0)
    prompt = np.where(admitted, calls["prompt_tokens"], 0)
    bound = np.where(admitted, calls["bound_tokens"], 0)
    lost = np.clip(bound - hit, 0, None)
    entry: dict[str, Any] = {
        "lost_swa_tokens": int(np.clip(calls["lost_swa_tokens"][admitted], 0, None).sum()),
        "hit_tokens": int(hit.sum()),
        "bound_tokens": int(bound.sum()),
        # Lost against the bound, per call, so that hits on returned outputs do not hide losses elsewhere.
        "lost_tokens": int(lost.sum()),
        "lost_moved_tokens": int(lost[moved(calls, table)].sum()),
        **_stale(calls, table, hit, admitted),
    }
    if prompt.sum() > 0:
        entry["token_ratio"] = hit.sum().item() / prompt.sum().item()
        entry["bound_ratio"] = bound.sum().item() / prompt.sum().item()
        interval = bootstrap.ratio(hit.astype(np.float64), prompt.astype(np.float64)) if bootstrap else None
        if interval is not None:
            entry["token_ratio_ci_low"], entry["token_ratio_ci_high"] = interval
    return entry


def _stale(calls: Calls, table: TraceTable, hit: Int64s, admitted: Bools) -> dict[str, int]:
    stale = np.where(admitted, calls["stale_tokens"], 0)
    if not stale.any():
        return {"stale_tokens": 0, "stale_served_tokens": 0}
    # What of a hit goes beyond all that was seen in the call's own state.
    fresh = table.bound_tokens()[calls["row"]] - stale
    served = np.minimum(np.clip(hit - fresh, 0, None), stale)
    return {"stale_tokens": int(stale.sum()), "stale_served_tokens": int(served.sum())}


def moved(calls: Calls, table: TraceTable) -> Bools:
    """Calls that were served on another rank than the call they extend."""
    parent = calls.find(table.parent[calls["row"]], calls["instance"])
    elsewhere = (calls["replica"] != calls["replica"][parent]) | (calls["rank"] != calls["rank"][parent])
    return np.asarray((parent >= 0) & elsewhere)
