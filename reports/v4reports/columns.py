"""The arrays of a run: its calls (`calls.parquet`) and its sampled series (`result.json`), as numpy.

Calls are read a few columns at a time, when a figure asks for them: a run may have a million, and the
report shares its process with the simulator. Times are float seconds since the start of the run, NaN where
a call did not get that far (the file holds -1 nanoseconds there).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4reports.jsonview import View
from v4sim.errors import RunError

Floats = NDArray[np.float64]
CLASS = "event_class"


@dataclass(frozen=True, slots=True)
class Calls:
    """What calls.parquet holds: how many calls, and which columns. Reading may raise RunError."""

    path: Path
    n: int
    columns: frozenset[str]

    def get(self, *names: str) -> tuple[Floats, ...] | None:
        """Columns in the order asked, or None if the file lacks one. `_ns` columns come in seconds."""
        if not self.columns.issuperset(names):
            return None
        with _opened(self.path) as file:
            # One after the other, so that only one column is in memory twice.
            return tuple(_floats(_column(file, name), in_ns=name.endswith("_ns")) for name in names)

    def classes(self) -> tuple[NDArray[np.int64], tuple[str, ...]] | None:
        """The event class of every call as codes into names, or None if the file has none."""
        if CLASS not in self.columns:
            return None
        with _opened(self.path) as file:
            column = _column(file, CLASS).unify_dictionaries()
            if not column.num_chunks:
                return np.empty(0, np.int64), ()
            codes = _array(chunk.indices for chunk in column.chunks)
            return codes, tuple(column.chunk(0).dictionary.to_pylist())


@dataclass(frozen=True, slots=True)
class Series:
    """Samples over time; each array is [rank, sample]."""

    t_s: Floats
    by_name: Mapping[str, Floats]


def read_calls(path: Path) -> Calls | None:
    """None when the run directory holds no calls.parquet; RunError when the file is broken."""
    if not path.exists():
        return None
    with _opened(path) as file:
        return Calls(path, file.metadata.num_rows, frozenset(file.schema_arrow.names))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, read_dictionary=[CLASS]) as file:
            yield file
    except (OSError, pa.ArrowException, BufferError) as error:
        raise RunError(f"{path}: cannot be read as parquet ({error}). Run `v4sim replay` again.") from error


def _column(file: Any, name: str) -> Any:
    # One thread: a column is quick to read, and starting a pool is not.
    return file.read(columns=[name], use_threads=False).column(0)


def _array(chunks: Iterable[Any]) -> NDArray[Any]:
    """Arrow arrays as one of numpy, null as -1. By dlpack, because arrow's own to_numpy imports pandas."""
    whole = [np.from_dlpack(chunk.fill_null(-1) if chunk.null_count else chunk) for chunk in chunks]
    return np.concatenate(whole) if whole else np.empty(0)


def _floats(column: Any, *, in_ns: bool) -> Floats:
    """Tokens as they are; nanoseconds in seconds, NaN where negative."""
    values = _array(column.chunks).astype(np.float64)
    if in_ns:
        values[values < 0] = np.nan
        values *= 1e-9
    return values


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
