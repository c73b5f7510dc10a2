"""What a client waits for: TTFT by event class, end-to-end time, queueing, and time per output token.

TTFT runs from sending a call to its first token. The classes are the engine's (`event_class`): cold,
warm, resume_tool, resume_user, fork, rollback, subagent, host_restore, storage_restore. Two more rows
look at the same resumed calls from earlier moments: `resume_tool_from_return` from the tool's return
(where the trace knows how long the tool ran; the client's own delay is in it) and
`resume_tool_from_ready` from the end of the call that used the tool (tool and client in it).
TPOT = (last - first) / (n - 1) per call of n > 1 tokens. Queueing = from reaching the replica to admission:
host time before that (`outcomes`: `front_end`) is no queue.

Inter-token times come as histograms from the engine (`itl_burst`: as a client sees them; `itl_divided`: a
verify step's time divided over its tokens, so that sums are preserved).
Units: milliseconds out, nanoseconds in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4sim.metrics.bootstrap import SessionBootstrap
from v4sim.metrics.calls import Bools, Calls, Int64s
from v4sim.metrics.dist import NS_PER_MS, Dist, of_sorted
from v4traces.table import TraceTable

_INTERVALS = (("p50_ci", 0.50), ("p95_ci", 0.95))


def latencies(
    calls: Calls, table: TraceTable, counted: Bools, bootstrap: SessionBootstrap | None
) -> dict[str, Dist | dict[str, Dist]]:
    """The latency entries of METRICS over the calls in `counted` that got there."""
    finished = counted & calls.completed
    started = counted & (calls["first_token_ns"] >= 0)
    many = finished & (calls["output_tokens"] > 1)
    decode_ns = np.maximum(calls["last_token_ns"] - calls["first_seen_ns"], 0)
    return {
        "ttft_ms": ttft_by_class(calls, table, started, bootstrap),
        "e2e_ms": _timed(calls["last_token_ns"] - calls["sent_ns"], finished, bootstrap),
        "queue_ms": _timed(calls["admit_ns"] - calls["queued_ns"], counted & calls.admitted, bootstrap),
        "tpot_ms": _timed(decode_ns / np.maximum(calls["output_tokens"] - 1, 1), many, bootstrap),
    }


def ttft_by_class(
    calls: Calls, table: TraceTable, started: Bools, bootstrap: SessionBootstrap | None
) -> dict[str, Dist]:
    """`all`, every event class that occurs, and the two earlier views of calls resumed after a tool."""
    first = calls["first_seen_ns"]
    ttft = first - calls["sent_ns"]
    dists = {"all": _timed(ttft, started, bootstrap)}
    for name in sorted(calls.event_class.names):
        chosen = started & calls.event_class.equals(name)
        if chosen.any():
            dists[name] = _timed(ttft, chosen, bootstrap)
    resumed = started & calls.event_class.equals("resume_tool")
    if resumed.any():
        dists["resume_tool_from_ready"] = _timed(first - calls["ready_ns"], resumed, bootstrap)
        returned_ns, known = tool_return(calls, table)
        if (resumed & known).any():
            dists["resume_tool_from_return"] = _timed(first - returned_ns, resumed & known, bootstrap)
    return dists


def tool_return(calls: Calls, table: TraceTable) -> tuple[Int64s, Bools]:
    """When the tool returned, and for which calls the trace knows it. Never later than the call was sent."""
    tool_s = table.tool_latency_s[calls["row"]]
    known = np.isfinite(tool_s)
    tool_ns = np.rint(np.where(known, tool_s, 0.0) * 1e9).astype(np.int64)
    return np.minimum(calls["ready_ns"] + tool_ns, calls["sent_ns"]), known


def _timed(values: NDArray[Any], chosen: Bools, bootstrap: SessionBootstrap | None) -> Dist:
    which = np.flatnonzero(chosen)
    picked = values[which]
    if bootstrap is None:
        return of_sorted(np.sort(picked), NS_PER_MS)
    order = np.argsort(picked, kind="stable")
    ascending = picked[order]
    dist = of_sorted(ascending, NS_PER_MS)
    if len(ascending):
        intervals = bootstrap.quantiles(ascending, which[order], tuple(q for _, q in _INTERVALS))
        for (name, _), (low, high) in zip(_INTERVALS, intervals, strict=True):
            dist[name] = [low / NS_PER_MS, high / NS_PER_MS]
    return dist
