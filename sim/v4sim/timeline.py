"""`timeline.json`: a run as slices, in the Chrome trace event format that Perfetto and chrome://tracing open.

A replica is a process. Each of its ranks has as many threads (lanes) as calls it holds at once; a call is
one slice from reaching the replica to its last token, with slices for queue, prefill and decode inside.
Counters show KV use and calls running and queued per rank.

Size is capped: at most `CALLS_SHOWN` calls, those that reach a replica first in the steady window (the
start of the run where it has too few), `STEPS_SHOWN` step slices beside them, and `SAMPLES_SHOWN` samples
per counter. What was left out is said in `otherData`.
Units of the format: microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from v4sim.metrics.calls import Calls, Int64s
from v4sim.metrics.samples import evenly
from v4sim.metrics.window import Window
from v4sim.results import RunResult

CALLS_SHOWN = 2000
SAMPLES_SHOWN = 200
STEPS_SHOWN = 3000
STEPS_THREAD = 1
LANES_PER_RANK = 1000  # thread ids of rank r start at (r + 1) times this

Event = dict[str, Any]
Block = tuple[int, int, int, str, int, int]  # replica, start, end, kind, decode rows, prefill tokens


def timeline_json(calls: Calls, session_names: Sequence[str], result: RunResult, window: Window) -> bytes:
    """The file's bytes: calls and steps of one stretch of the run, counters over all of it."""
    ranks = [(rank.replica, rank.rank) for rank in result.ranks]
    shown = choose_calls(calls, window)
    steps = _steps_beside(calls, shown, result)
    events = [
        *_process_names(ranks),
        *_step_events(steps),
        *_call_events(calls, shown, session_names),
        *_counters(result.series, ranks),
    ]
    reached = int((calls["queued_ns"] >= 0).sum())
    other = {
        "calls_shown": len(shown),
        "calls_served": reached,
        "calls_injected": len(calls),
        "calls_cap": CALLS_SHOWN,
        "step_slices_shown": len(steps),
        "step_slices_recorded": len(result.blocks),
        "step_slices_not_recorded": result.blocks_dropped,
        "step_slices_cap": STEPS_SHOWN,
        "samples_cap": SAMPLES_SHOWN,
        "note": _note(calls, shown, reached),
    }
    found = {"displayTimeUnit": "ms", "otherData": other, "traceEvents": events}
    return json.dumps(found, separators=(",", ":")).encode()


def _steps_beside(calls: Calls, shown: Int64s, result: RunResult) -> list[Block]:
    """The recorded step slices from the first shown call on, up to the cap."""
    since = int(calls["queued_ns"][shown[0]]) if len(shown) else 0
    return [block for block in result.blocks if block[2] >= since][:STEPS_SHOWN]


def _step_events(steps: Sequence[Block]) -> Iterator[Event]:
    for replica in sorted({block[0] for block in steps}):
        yield _metadata("thread_name", replica, STEPS_THREAD, "steps")
    for replica, start, end, kind, rows, tokens in steps:
        args = {"decode_rows": rows, "prefill_tokens": tokens}
        yield _slice(kind, "step", replica, STEPS_THREAD, start, end, args)


def choose_calls(calls: Calls, window: Window) -> Int64s:
    """Indices of the calls to show, in order of reaching their replica."""
    queued = calls["queued_ns"]
    order = np.argsort(queued, kind="stable")
    order = order[queued[order] >= 0]
    first = int(np.searchsorted(queued[order], window.start_ns))
    # Start earlier when the window has fewer calls than fit.
    first = max(min(first, len(order) - CALLS_SHOWN), 0)
    return order[first : first + CALLS_SHOWN]


def _note(calls: Calls, shown: Int64s, reached: int) -> str:
    if not len(shown):
        return "no call reached a replica"
    queued = calls["queued_ns"][shown]
    span = f"reaching a replica from {int(queued[0]) / 1e9:.3f} s to {int(queued[-1]) / 1e9:.3f} s"
    return f"all calls, {span}" if len(shown) == reached else f"{len(shown)} of {reached} calls, those {span}"


def _process_names(ranks: Sequence[tuple[int, int]]) -> Iterator[Event]:
    for replica in sorted({replica for replica, _ in ranks}):
        yield _metadata("process_name", replica, 0, f"replica {replica}")


def _metadata(name: str, pid: int, tid: int, value: str) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": {"name": value}}


def _call_events(calls: Calls, shown: Int64s, session_names: Sequence[str]) -> Iterator[Event]:
    def column(name: str) -> list[int]:
        values: list[int] = calls[name][shown].tolist()
        return values

    pids, rank_of = column("replica"), column("rank")
    queued, admit, first, last = (
        column(name) for name in ("queued_ns", "admit_ns", "first_token_ns", "last_token_ns")
    )
    hits = calls.hits_all_tiers[shown].tolist()
    # A call that did not end is drawn to the last moment the run knows of.
    horizon = int(max(calls[name].max(initial=0) for name in ("queued_ns", "last_token_ns")))
    ends = [end if end >= 0 else max(horizon, start) for end, start in zip(last, queued, strict=True)]
    lanes = assign_lanes(list(zip(pids, rank_of, strict=True)), queued, ends)
    for pid, tid in sorted(
        {(pid, _tid(rank, lane)) for pid, rank, lane in zip(pids, rank_of, lanes, strict=True)}
    ):
        rank, lane = divmod(tid, LANES_PER_RANK)
        yield _metadata("thread_name", pid, tid, f"rank {rank - 1}, lane {lane}")
    classes, done = calls.event_class, calls.done
    sessions, turns = column("session"), column("turn")
    prompts, outputs = column("prompt_tokens"), column("output_tokens")
    for i, call in enumerate(shown.tolist()):
        pid, tid = pids[i], _tid(rank_of[i], lanes[i])
        args = {
            "session": session_names[sessions[i]],
            "turn": turns[i],
            "prompt_tokens": prompts[i],
            "hit_tokens": hits[i],
            "output_tokens": outputs[i],
            "done": done.names[done.codes[call]],
        }
        name = classes.names[classes.codes[call]]
        yield _slice(name, "call", pid, tid, queued[i], ends[i], args)
        moments = [queued[i], admit[i], first[i], last[i]]
        for label, start, end in zip(("queue", "prefill", "decode"), moments, moments[1:], strict=False):
            if start < 0:
                break
            yield _slice(label, "phase", pid, tid, start, end if end >= 0 else ends[i], None)


def _tid(rank: int, lane: int) -> int:
    return (rank + 1) * LANES_PER_RANK + lane


def _slice(name: str, cat: str, pid: int, tid: int, start: int, end: int, args: Event | None) -> Event:
    event: Event = {"ph": "X", "name": name, "cat": cat, "pid": pid, "tid": tid}
    event["ts"], event["dur"] = start / 1e3, (end - start) / 1e3
    if args is not None:
        event["args"] = args
    return event


def assign_lanes(owners: Sequence[tuple[int, int]], starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The lowest lane of its owner that is free for each span, spans ascending by start."""
    busy: dict[tuple[int, int], list[tuple[int, int]]] = {}
    free: dict[tuple[int, int], list[int]] = {}
    lanes = []
    for owner, start, end in zip(owners, starts, ends, strict=True):
        taken, open_lanes = busy.setdefault(owner, []), free.setdefault(owner, [])
        while taken and taken[0][0] <= start:
            heappush(open_lanes, heappop(taken)[1])
        lane = heappop(open_lanes) if open_lanes else len(taken)
        heappush(taken, (end, lane))
        lanes.append(lane)
    return lanes


def _counters(series: Mapping[str, Any], ranks: Sequence[tuple[int, int]]) -> Iterator[Event]:
    times = np.asarray(series["t_ns"])
    chosen = evenly(len(times), SAMPLES_SHOWN)
    moments = (times[chosen] / 1e3).tolist()
    for name in sorted(set(series) - {"t_ns"}):
        values = np.asarray(series[name])
        for (replica, rank), samples in zip(ranks, values[chosen].T.tolist(), strict=True):
            label = f"{name}, rank {rank}"
            for moment, value in zip(moments, samples, strict=True):
                yield {"ph": "C", "name": label, "pid": replica, "ts": moment, "args": {"value": value}}
