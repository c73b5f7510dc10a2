"""`calls.parquet`: one row per injected call, in order of injection.

The columns of `Calls` as they are, with names in place of codes for session and trigger, plus the task
copy each call belongs to. Every field carries its meaning as parquet metadata
(`pyarrow.parquet.read_schema(...).field(name).metadata`). Moments are integer nanoseconds of simulated
time since the start of the run; -1 = not reached or not known. The same calls give the same bytes with
the same pyarrow.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from v4sim.metrics.calls import INT_COLUMNS, Calls, Coded, Int64s
from v4traces.arrays import from_values
from v4traces.schema import TRIGGERS

if TYPE_CHECKING:
    import pyarrow as pa

    from v4traces.table import TraceTable

MEANING: dict[str, str] = {
    "row": "row of the trace",
    "session_id": "session of the trace",
    "session": "number of the session in the trace",
    "instance": "which replayed copy of the session, from 0",
    "task": "task copy this call belongs to, numbered in order of first call",
    "turn": "turn within the session",
    "replica": "replica that served it",
    "rank": "attention-DP rank within the replica",
    "trigger": "what made the call start",
    "event_class": "what kind of event its first token is",
    "done": "completed, rejected, aborted, running or queued when the run ended",
    "prompt_tokens": "prompt",
    "output_tokens": "output the call has in the trace",
    "hit_tokens": "prompt tokens served from device cache at first admission",
    "hit_host_tokens": "prompt tokens served from host memory",
    "hit_storage_tokens": "prompt tokens served from storage",
    "computed_tokens": "prompt tokens computed at first admission: prompt minus the hits",
    "recomputed_tokens": "tokens computed again after retraction, preemption or lost SWA tails",
    "bound_tokens": "prompt tokens that a cache without limit could serve",
    "stale_tokens": "prompt tokens that were seen before, but with another state outside the tokens",
    "lost_swa_tokens": "tokens of full history that could not be used because SWA tails were gone",
    "ready_ns": "the calls it waits for have ended",
    "sent_ns": "ready plus tool and client delay: it reaches the router",
    "queued_ns": "it reaches its replica",
    "admit_ns": "first admission to a batch",
    "first_token_ns": "first output token, out of the engine",
    "first_seen_ns": "first output token, past the front end",
    "last_token_ns": "last output token",
    "retractions": "times it was retracted or preempted",
    "verify_steps": "verify steps of speculative decoding",
    "drafts_offered": "draft tokens offered",
    "drafts_accepted": "draft tokens accepted",
    "wait_queue_ns": "waited behind other calls",
    "wait_kv_ns": "waited for KV tokens",
    "wait_swa_ns": "waited for SWA tails",
    "wait_slots_ns": "waited for a request slot",
    "wait_budget_ns": "waited for prefill budget",
    "gpu_share_ns": "its share of the step time of its replica",
    "kv_peak_tokens": "most KV tokens it held",
}
_TEXTS = ("session_id", "trigger", "event_class", "done")
_WIDE = ("row",)


def calls_table(calls: Calls, trace: TraceTable, task_of_call: Int64s) -> pa.Table:
    """The arrow table that `write_calls` stores."""
    import pyarrow as pa

    texts = {
        "session_id": Coded(calls["session"].astype(np.int32), tuple(trace.session_names)),
        "trigger": Coded(calls["trigger"].astype(np.int32), TRIGGERS),
        "event_class": calls.event_class,
        "done": calls.done,
    }
    fields, arrays = [], []
    for name, meaning in MEANING.items():
        array: Any
        if name in _TEXTS:
            coded = texts[name]
            array = pa.DictionaryArray.from_arrays(
                _integers(coded.codes), from_values(list(coded.names), pa.string())
            )
        else:
            values = task_of_call if name == "task" else calls[name]
            wide = name.endswith("_ns") or name in _WIDE
            array = _integers(values.astype(np.int64 if wide else np.int32))
        unit = "ns" if name.endswith("_ns") else "tokens" if name.endswith("_tokens") else ""
        fields.append(pa.field(name, array.type, nullable=False, metadata={"meaning": meaning, "unit": unit}))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _integers(values: NDArray[Any]) -> Any:
    """An arrow array over the same memory; `pa.array` would import pandas for it."""
    import pyarrow as pa

    kind = pa.int64() if values.dtype == np.int64 else pa.int32()
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def write_calls(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    # Delta coding suits rising times; dictionaries only pay where few values repeat.
    few = [*_TEXTS, "instance", "replica", "rank", "retractions"]
    delta = {name: "DELTA_BINARY_PACKED" for name in MEANING if name not in few}
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=1,
        use_dictionary=few,
        column_encoding=delta,
        row_group_size=1 << 18,
    )


def read_calls(path: Path) -> Calls:
    """The `Calls` of a stored run."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from v4sim.errors import RunError

    try:
        table = pq.read_table(path, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"{path}: cannot be read as parquet ({error}). Run `v4sim replay` again.") from None
    triggers = {name: code for code, name in enumerate(TRIGGERS)}
    columns: dict[str, Any] = {
        name: table.column(name).to_numpy()
        for name in INT_COLUMNS
        if name != "trigger" and name in table.schema.names
    }
    for name in _TEXTS:
        if name in table.schema.names:
            columns[name] = table.column(name).cast(pa.string()).to_pylist()
    if "trigger" in columns:
        columns["trigger"] = [triggers[name] for name in columns["trigger"]]
    return Calls.of(columns)
