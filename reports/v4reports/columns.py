"""The arrays of a run: its calls (`calls.parquet`) and its sampled series (`result.json`), as numpy.

Only the columns that a figure uses are read. A column that the file lacks is None. Times are float seconds
since the start of the run, NaN where a call did not get that far (the file holds -1 nanoseconds there).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4reports.jsonview import View
from v4sim.errors import RunError

Floats = NDArray[np.float64]

TIMES = ("ready_ns", "sent_ns", "queued_ns", "admit_ns", "first_token_ns", "last_token_ns")
SPANS = ("wait_queue_ns", "wait_kv_ns", "wait_swa_ns", "wait_slots_ns", "wait_budget_ns", "gpu_share_ns")
TOKENS = (
    "prompt_tokens",
    "output_tokens",
    "hit_tokens",
    "hit_host_tokens",
    "hit_storage_tokens",
    "computed_tokens",
    "recomputed_tokens",
    "bound_tokens",
)


@dataclass(frozen=True, slots=True)
class Calls:
    """Columns by name without their unit suffix `_ns`: times and spans in seconds, the rest in tokens."""

    n: int
    event_class: NDArray[np.int64] | None  # codes into class_names
    class_names: tuple[str, ...]
    columns: Mapping[str, Floats]

    def get(self, *names: str) -> tuple[Floats, ...] | None:
        """The columns, or None if the file lacks one of them."""
        found = tuple(self.columns[name] for name in names if name in self.columns)
        return found if len(found) == len(names) else None


@dataclass(frozen=True, slots=True)
class Series:
    """Samples over time; each array is [rank, sample]."""

    t_s: Floats
    by_name: Mapping[str, Floats]


def read_calls(path: Path) -> Calls | None:
    """None when the run directory holds no calls.parquet; RunError when the file is broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        return None
    try:
        # One thread and no memory map: the table is small, and start-up is what takes the time.
        with pq.ParquetFile(path, read_dictionary=["event_class"]) as file:
            names = file.schema_arrow.names
            present = [name for name in (*TIMES, *SPANS, *TOKENS) if name in names]
            classes = ["event_class"] if "event_class" in names else []
            table = file.read(columns=present + classes, use_threads=False).unify_dictionaries()
            columns = {name: _floats(table.column(name).chunks) for name in present}
    except (OSError, pa.ArrowException, BufferError) as error:
        raise RunError(f"{path}: cannot be read as parquet ({error}). Run `v4sim replay` again.") from error
    codes, class_names = _codes(table.column("event_class")) if classes else (None, ())
    return Calls(
        n=table.num_rows,
        event_class=codes,
        class_names=class_names,
        columns={
            name.removesuffix("_ns"): values
            if name in TOKENS
            else np.where(values < 0, np.nan, values * 1e-9)
            for name, values in columns.items()
        },
    )


def _floats(chunks: Iterable[Any]) -> Floats:
    """Arrow arrays as floats, null as -1. Through dlpack, because arrow's own to_numpy imports pandas."""
    whole = [chunk.fill_null(-1) if chunk.null_count else chunk for chunk in chunks]
    return np.concatenate([np.empty(0), *(np.from_dlpack(chunk) for chunk in whole)])


def _codes(column: Any) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """A column of few distinct texts as codes into their names."""
    if not column.num_chunks:
        return np.empty(0, np.int64), ()
    codes = _floats([chunk.indices for chunk in column.chunks])
    return codes.astype(np.int64), tuple(column.chunk(0).dictionary.to_pylist())


def read_series(view: View) -> Series | None:
    """The sampled series, or None when the run kept none (or fewer than two samples)."""
    times: Any = view.numbers("t_s")
    if not times:
        times = [value * 1e-9 for value in view.numbers("t_ns")]
    if len(times) < 2:
        return None
    by_name = {name: _by_rank(view, name, len(times)) for name in view if name not in ("t_s", "t_ns")}
    return Series(
        t_s=np.asarray(times, dtype=np.float64),
        by_name={name: values for name, values in by_name.items() if values is not None},
    )


def _by_rank(view: View, name: str, num_samples: int) -> Floats | None:
    """One row per rank. The file has [sample][rank]; [rank][sample] and a plain list for one rank also do."""
    try:
        values = np.atleast_2d(np.asarray(view.data[name], dtype=np.float64))
    except (TypeError, ValueError):
        raise view.wrong(name, "a list of numbers for each rank") from None
    if values.ndim != 2:
        raise view.wrong(name, "a list of numbers for each rank")
    if values.shape[0] == num_samples:
        return np.ascontiguousarray(values.T)
    return values if values.shape[1] == num_samples else None


def held_means(t_s: Floats, values: Floats, edges: Floats) -> Floats:
    """Mean over time in each bin of a state that holds until the next sample (0 before the first)."""
    held = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(t_s))])
    # The integral is linear between samples, and goes on with the last state after them.
    integral = np.interp(edges, t_s, held) + np.clip(edges - t_s[-1], 0.0, None) * values[-1]
    means: Floats = np.diff(integral) / np.diff(edges)
    return means


def held_maxima(t_s: Floats, values: Floats, edges: Floats) -> Floats:
    """Greatest state in each bin: of its samples, and of the state it begins with."""
    before = np.searchsorted(t_s, edges[:-1], side="right") - 1
    maxima: Floats = np.where(before >= 0, values[np.maximum(before, 0)], 0.0)
    inside = (t_s >= edges[0]) & (t_s <= edges[-1])
    bin_of = np.clip(np.searchsorted(edges, t_s[inside], side="right") - 1, 0, len(edges) - 2)
    np.maximum.at(maxima, bin_of, values[inside])
    return maxima
