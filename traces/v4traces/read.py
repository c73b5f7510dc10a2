"""Reads `trace.parquet` into a `TraceTable`, resolving links and checking every law.

The whole file is read and hashed once, so the hash in a run's manifest is that of the bytes which
were simulated. Columns are decoded one at a time to keep the peak low.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from v4traces.columns import Columns, check_names, conform, field_numbers
from v4traces.errors import TraceError
from v4traces.laws import Finding, broken_laws
from v4traces.links import CallIndex, after, parents
from v4traces.rows import TraceMetadata
from v4traces.schema import METADATA_KEY, PHASES, TRIGGERS, Column
from v4traces.sniff import refuse_impostor
from v4traces.table import TraceTable

_STRINGS = [
    "session_id",
    "parent_session",
    "task_id",
    "group_id",
    "trigger",
    "tool_class",
    "snapshot_id",
    "tool_schema_id",
    "system_id",
    "environment_id",
    "model",
]


def read_table(path: str | Path) -> TraceTable:
    """The trace at `path`. Raises `TraceError`, naming row and column, at the first broken law."""
    table, findings = load(path)
    for finding in findings:
        if finding.severity == "error":
            raise TraceError(finding.message)
    return table


def load(path: str | Path, name: str | None = None) -> tuple[TraceTable, list[Finding]]:
    """The trace and all broken laws. Raises only where no table can be made at all.

    `name` is what messages call the file, if not by its own name.
    """
    name = name or Path(path).name
    data, file = _open(Path(path))
    check_names(file.schema_arrow.names, name)
    n = file.metadata.num_rows
    if n == 0:
        raise TraceError(f"{name} has no rows. A trace has at least one call; import the source again.")
    present = set(file.schema_arrow.names)

    def take(column: Column) -> pa.ChunkedArray | None:
        if column.name not in present:
            return None
        try:
            values = file.read(columns=[column.name]).column(0)
        except (pa.ArrowException, OSError) as error:
            raise _broken(name, error) from None
        return conform(values, column, name)

    built = _build(Columns(n, take), n, _metadata(file, name), hashlib.sha256(data).hexdigest(), name)
    # Arrow keeps the memory of columns that were decoded for the next ones: as much as the whole table.
    pa.default_memory_pool().release_unused()
    return built


def _open(path: Path) -> tuple[bytes, pq.ParquetFile]:
    if path.is_dir():
        raise TraceError(f"{path} is a folder; a trace is one parquet file. Name the file.")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TraceError(
            f"there is no file {path}. Make a trace with `v4traces import` or `synth`."
        ) from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read ({error.strerror}). Check its permissions.") from None
    refuse_impostor(data[:256], path.name)
    if not data.startswith(b"PAR1"):
        raise TraceError(
            f"{path.name} is not a parquet file (it starts with {data[:8]!r}). Turn logs into a trace with"
            " `v4traces import`."
        )
    try:
        footer = pq.read_metadata(pa.BufferReader(data))
        there = set(footer.schema.names)
        strings = [name for name in _STRINGS if name in there]
        return data, pq.ParquetFile(pa.BufferReader(data), metadata=footer, read_dictionary=strings)
    except (pa.ArrowException, OSError) as error:
        raise _broken(path.name, error) from None


def _broken(name: str, error: Exception) -> TraceError:
    reason = str(error).splitlines()[0].rstrip(".")
    return TraceError(
        f"{name} is a damaged or truncated parquet file ({reason})."
        " Copy it again, or import the source again."
    )


def _metadata(file: pq.ParquetFile, name: str) -> TraceMetadata:
    text = (file.metadata.metadata or {}).get(METADATA_KEY)
    if text is None:
        raise TraceError(
            f"{name} has no v4traces metadata, so its schema version, block size and class are unknown."
            " Write traces with v4traces.TraceWriter or `v4traces import`."
        )
    return TraceMetadata.from_json(text)


def _build(
    columns: Columns, n: int, metadata: TraceMetadata, digest: str, name: str
) -> tuple[TraceTable, list[Finding]]:
    session, session_names = columns.codes("session_id")
    turn = columns.numbers("turn", 0, np.int32)
    findings: list[Finding] = []
    calls = CallIndex(session, session_names, turn, name, findings)
    parent = parents(columns, calls, n)
    after_offsets, after_rows = after(columns, calls, n)
    phase_offsets, phases = columns.lists("phases")
    group, group_names = columns.codes("group_id")
    task, task_names = columns.codes("task_id")
    tool_class, tool_class_names = columns.codes("tool_class")
    snapshot, snapshot_names = columns.codes("snapshot_id")
    tool_schema, tool_schema_names = columns.codes("tool_schema_id")
    system, system_names = columns.codes("system_id")
    environment, environment_names = columns.codes("environment_id")
    model, model_names = columns.codes("model")
    device, host, storage = _cached(columns)
    table = TraceTable(
        n=n,
        metadata=metadata,
        sha256=digest,
        path=name,
        session=session,
        session_names=session_names,
        turn=turn,
        parent=parent,
        shared_tokens=columns.numbers("shared_tokens", 0, np.int64),
        shared_output_tokens=columns.numbers("shared_output_tokens", 0, np.int64),
        group=group,
        group_names=group_names,
        group_tokens=columns.numbers("group_tokens", 0, np.int64),
        prompt_tokens=columns.numbers("prompt_tokens", 0, np.int64),
        output_tokens=columns.numbers("output_tokens", 0, np.int64),
        max_output_tokens=columns.numbers("max_output_tokens", -1, np.int64),
        reasoning_tokens=columns.numbers("reasoning_tokens", -1, np.int64),
        arrival_s=columns.numbers("arrival_s", np.nan, np.float64),
        after_offsets=after_offsets,
        after_rows=after_rows,
        delay_s=columns.numbers("delay_s", 0.0, np.float64),
        trigger=columns.choices("trigger", TRIGGERS, name),
        task=task,
        task_names=task_names,
        tool_class=tool_class,
        tool_class_names=tool_class_names,
        tool_latency_s=columns.numbers("tool_latency_s", np.nan, np.float64),
        phase_offsets=phase_offsets,
        phase_kind=_empty(np.int8)
        if phases is None
        else columns.kinds(phases, phase_offsets, "phases", PHASES, name),
        phase_tokens=_empty(np.int64) if phases is None else field_numbers(phases, "tokens", 0),
        observed_device_tokens=device,
        observed_host_tokens=host,
        observed_storage_tokens=storage,
        observed_ttft_s=columns.numbers("observed_ttft_s", np.nan, np.float64),
        observed_e2e_s=columns.numbers("observed_e2e_s", np.nan, np.float64),
        snapshot=snapshot,
        snapshot_names=snapshot_names,
        tool_schema=tool_schema,
        tool_schema_names=tool_schema_names,
        system=system,
        system_names=system_names,
        environment=environment,
        environment_names=environment_names,
        model=model,
        model_names=model_names,
        priority=columns.numbers("priority", 0, np.int32),
        success=columns.numbers("success", -1, np.int8),
        acceptance=_acceptance(columns, name),
    )
    if not np.array_equal(columns.present("group_id"), columns.present("group_tokens")):
        row = int(np.argmax(columns.present("group_id") != columns.present("group_tokens")))
        findings.append(
            Finding(
                "error",
                "group_is_complete",
                f"{name}, {table.label(row)}: only one of group_id and group_tokens has a value."
                " Write both or neither.",
                row,
                "group_id",
            )
        )
    return table, findings + list(broken_laws(table))


def _empty(dtype: Any) -> NDArray[Any]:
    return np.zeros(0, dtype=dtype)


def _cached(columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    values = columns.structs("observed_cached_tokens")
    device, host, storage = (
        columns.struct_numbers(values, name, -1) for name in ("device", "host", "storage")
    )
    return device, host, storage


def _acceptance(columns: Columns, file: str) -> dict[int, tuple[tuple[str, tuple[float, ...]], ...]]:
    """Per row with a table of its own; few rows have one, so plain Python is right here."""
    offsets, flat = columns.lists("acceptance")
    found: dict[int, tuple[tuple[str, tuple[float, ...]], ...]] = {}
    if flat is None:
        return found
    columns.kinds(flat, offsets, "acceptance", PHASES, file)
    for row in np.flatnonzero(np.diff(offsets)).tolist():
        entries = flat.slice(int(offsets[row]), int(offsets[row + 1] - offsets[row])).to_pylist()
        found[row] = tuple((entry["kind"], tuple(entry["per_position"] or ())) for entry in entries)
        for kind, rates in found[row]:
            if not all(0.0 <= rate <= 1.0 for rate in rates):
                raise TraceError(
                    f"{file}, row {row}, column 'acceptance': the {kind} rates are {rates}; a probability"
                    " lies between 0 and 1. Correct the rates or write null."
                )
    return found
