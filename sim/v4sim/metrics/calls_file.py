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
import pyarrow as pa
from numpy.typing import NDArray

from v4sim.metrics.calls import INT_COLUMNS, Calls, Coded, Int64s
from v4traces.arrays import from_values
from v4traces.schema import TRIGGERS

if TYPE_CHECKING:
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
# Delta coding suits rising times; dictionaries only pay where few values repeat.
_FEW = (*_TEXTS, "instance", "replica", "rank", "retractions")
_ROW_GROUP = 1 << 18


def write_calls(calls: Calls, trace: TraceTable, task_of_call: Int64s, path: Path) -> None:
    """Store the calls, row group by row group: of a million there is no room for a second copy."""
    import pyarrow.parquet as pq

    texts = {
        "session_id": Coded(calls.columns["session"], tuple(trace.session_names)),
        "trigger": Coded(calls.columns["trigger"], TRIGGERS),
        "event_class": calls.event_class,
        "done": calls.done,
    }
    columns = {**calls.columns, "task": task_of_call, **{name: coded.codes for name, coded in texts.items()}}
    names = {name: from_values(list(coded.names), pa.string()) for name, coded in texts.items()}
    schema = _schema()
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=list(_FEW),
        column_encoding={name: "DELTA_BINARY_PACKED" for name in MEANING if name not in _FEW},
    ) as file:
        for begin in range(0, max(len(calls), 1), _ROW_GROUP):
            group = slice(begin, begin + _ROW_GROUP)
            arrays = [
                _array(columns[field.name][group], field.type, names.get(field.name)) for field in schema
            ]
            file.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _schema() -> pa.Schema:
    """Every field with its meaning and unit; moments and rows are wide."""

    def field(name: str, meaning: str) -> pa.Field:
        unit = "ns" if name.endswith("_ns") else "tokens" if name.endswith("_tokens") else ""
        kind = pa.int64() if unit == "ns" or name == "row" else pa.int32()
        if name in _TEXTS:
            kind = pa.dictionary(kind, pa.string())
        return pa.field(name, kind, nullable=False, metadata={"meaning": meaning, "unit": unit})

    return pa.schema([field(name, meaning) for name, meaning in MEANING.items()])


def _array(values: NDArray[Any], kind: pa.DataType, names: pa.Array | None) -> pa.Array:
    """An arrow array, over the same memory if the type is the same; `pa.array` would import pandas."""
    if names is not None:
        return pa.DictionaryArray.from_arrays(_array(values, kind.index_type, None), names)
    wide = np.ascontiguousarray(values, np.int64 if kind == pa.int64() else np.int32)
    return pa.Array.from_buffers(kind, len(wide), [None, pa.py_buffer(wide)])


def read_calls(path: Path) -> Calls:
    """The `Calls` of a stored run."""
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
