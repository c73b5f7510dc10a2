"""Tasks: what an operator pays for and waits for.

A task is what the trace's `task_id` says, otherwise one root session with the sub-agents it started
(`TraceTable.task_of_row`); every replayed copy of a session is a task of its own. It is finished when
every call that the trace holds for it completed; `completed` counts tasks whose last token falls into the
window. Its time runs from sending its first call to its last token, tools and people included.

Tasks of agents can outlast any window, and those that end inside a short one are the short ones. So rates
and costs per task count a finished task by the part of its GPU time that lies in the window (`equivalent`);
over the whole run that is the number of finished tasks.

GPU-seconds of a task are its calls' shares of step time (attributed), wherever they fall: idle capacity
is not in them. Cache bytes are the peak KV of each of its sessions, summed: what it would pin if all were
warm at once. Success is known only where the trace says so; nothing is assumed.
Units: nanoseconds, tokens; `_s` seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4sim.metrics.calls import Bools, Calls, Int64s, dense_codes
from v4sim.metrics.dist import NS_PER_S, of_values
from v4sim.metrics.window import Window
from v4traces.table import TraceTable


@dataclass(frozen=True, slots=True)
class Tasks:
    """One entry per replayed copy of a task, in order of its first call; `of_call` numbers them."""

    of_call: Int64s
    start_ns: Int64s
    end_ns: Int64s  # last token of any completed call so far
    finished: Bools
    success: Int64s  # 1, 0, or -1 where the trace does not say
    gpu_share_ns: Int64s
    kv_peak_tokens: Int64s
    sessions: Int64s
    calls: Int64s

    def __len__(self) -> int:
        return len(self.start_ns)

    @classmethod
    def of(cls, calls: Calls, table: TraceTable) -> Tasks:
        task_of_row = table.task_of_row().astype(np.int64)
        of_call, count = dense_codes(task_of_row[calls["row"]], calls["instance"])
        start = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(start, of_call, calls["sent_ns"])
        end = np.full(count, -1, dtype=np.int64)
        completed = calls.completed
        np.maximum.at(end, of_call[completed], calls["last_token_ns"][completed])
        done = np.bincount(of_call[completed], minlength=count)
        task = np.zeros(count, dtype=np.int64)
        task[of_call] = task_of_row[calls["row"]]
        expected = np.bincount(task_of_row) if table.n else np.zeros(0, dtype=np.int64)
        session, sessions = calls.dense("session", "instance")
        peak = np.zeros(sessions, dtype=np.int64)
        np.maximum.at(peak, session, calls["kv_peak_tokens"])
        task_of_session = np.zeros(sessions, dtype=np.int64)
        task_of_session[session] = of_call
        return cls(
            of_call=of_call,
            start_ns=start,
            end_ns=end,
            finished=done == expected[task],
            success=_success(table, task_of_row)[task],
            gpu_share_ns=_summed(of_call, np.clip(calls["gpu_share_ns"], 0, None), count),
            kv_peak_tokens=_summed(task_of_session, peak, count),
            sessions=np.bincount(task_of_session, minlength=count),
            calls=np.bincount(of_call, minlength=count),
        )

    def ended_in(self, window: Window) -> Bools:
        return self.finished & window.holds(self.end_ns)

    def active_in(self, window: Window) -> Bools:
        return (self.start_ns < window.end_ns) & (self.end_ns >= window.start_ns)


def work_shares(tasks: Tasks, calls: Calls, window: Window) -> NDArray[np.float64]:
    """Per finished task, the part of its GPU time inside the window; 0 for others.

    A call's GPU time is spread evenly from its admission to its last token.
    """
    used = np.where(calls.completed, np.clip(calls["gpu_share_ns"], 0, None), 0)
    inside = window.share_of(calls["admit_ns"], calls["last_token_ns"]) * used
    inside_of_task = np.bincount(tasks.of_call, weights=inside, minlength=len(tasks))
    total = np.bincount(tasks.of_call, weights=used, minlength=len(tasks))
    # A task without any GPU time (it cannot have finished) divides by 1.
    return np.where(tasks.finished, inside_of_task / np.maximum(total, 1.0), 0.0)


def tasks_entry(
    tasks: Tasks, calls: Calls, window: Window, gpus_per_replica: int, kv_bytes_per_token: float | None
) -> dict[str, Any]:
    """The `tasks` entry of METRICS. Figures per task are absent when no task did anything in the window."""
    ended = tasks.ended_in(window)
    done = work_shares(tasks, calls, window)
    equivalent = float(done.sum())
    entry: dict[str, Any] = {
        "count": int(tasks.active_in(window).sum()),
        "completed": int(ended.sum()),
        "equivalent": equivalent,
        "e2e_s": of_values((tasks.end_ns - tasks.start_ns)[ended], NS_PER_S),
    }
    if window.length_ns > 0:
        entry["per_hour"] = equivalent / (window.length_ns / 3.6e12)
    if equivalent > 0.0:
        gpu_seconds = tasks.gpu_share_ns * (gpus_per_replica / 1e9)
        entry["gpu_seconds_per_task"] = float((gpu_seconds * done).sum()) / equivalent
        entry["calls_per_task"] = float((tasks.calls * done).sum()) / equivalent
        if kv_bytes_per_token is not None:
            cached = float((tasks.kv_peak_tokens * done).sum())
            entry["cache_bytes_per_task"] = cached * kv_bytes_per_token / equivalent
    if ended.any() and (tasks.success[ended] >= 0).all():
        entry["successful"] = int((tasks.success[ended] == 1).sum())
    return entry


def _summed(code: Int64s, values: Int64s, count: int) -> Int64s:
    """Exact integer sums by code (bincount with weights would go through floats)."""
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, code, values)
    return total


def _success(table: TraceTable, task_of_row: Int64s) -> Int64s:
    """Per task of the trace: its last stated success, -1 without one."""
    success = np.full(int(task_of_row.max(initial=-1)) + 1, -1, dtype=np.int64)
    stated = np.flatnonzero(table.success >= 0)
    success[task_of_row[stated]] = table.success[stated]  # the last assignment to an index stands
    return success
