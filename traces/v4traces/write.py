"""Writes `trace.parquet`: streaming by row group, whole or not at all.

Rows go to a hidden file beside the target. On a clean exit the result is read back through every law
(`read_table`) and only then renamed, so a trace that exists is a trace that holds. Same rows and
metadata give the same bytes, whatever the sizes of the batches they were appended in.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from v4traces.arrays import from_values
from v4traces.errors import TraceError
from v4traces.files import whole_file
from v4traces.read import load
from v4traces.rows import CallRow, TraceMetadata
from v4traces.schema import COLUMNS, METADATA_KEY, arrow_schema
from v4traces.table import TraceTable

ROW_GROUP_ROWS = 65_536


class TraceWriter:
    """Context manager that writes one file.

    `append` may be called any number of times; `metadata` may be replaced until the end, so that
    counts known only then can go into its notes. Leaving with an exception leaves nothing behind.
    """

    def __init__(self, path: str | Path, metadata: TraceMetadata, *, force: bool = False) -> None:
        self.metadata = metadata
        self.num_rows = 0
        self.table: TraceTable | None = None  # what was written, once it is
        self._path = Path(path)
        self._force = force
        self._buffer: list[CallRow] = []

    def __enter__(self) -> TraceWriter:
        with ExitStack() as stack:
            self._partial = stack.enter_context(whole_file(self._path, force=self._force))
            self._writer = pq.ParquetWriter(self._partial, arrow_schema(), compression="zstd")
            stack.push(self._finish)
            self._output = stack.pop_all()
        return self

    def append(self, rows: Iterable[CallRow]) -> None:
        """Add calls in the order of the file: what a call names must have been appended before it."""
        source = iter(rows)
        while batch := list(islice(source, ROW_GROUP_ROWS - len(self._buffer))):
            self._buffer += batch
            self.num_rows += len(batch)
            if len(self._buffer) == ROW_GROUP_ROWS:
                self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._output.__exit__(kind, error, trace)

    def _finish(self, kind: type[BaseException] | None, *_: object) -> None:
        """The last rows and the metadata, unless an exception is on its way; then the laws."""
        try:
            if kind is None:
                self._flush()
                self._writer.add_key_value_metadata({METADATA_KEY: self.metadata.to_json()})
        finally:
            self._writer.close()
        if kind is None:
            self._verify()

    def _flush(self) -> None:
        if self._buffer:
            self._writer.write_table(_table(self._buffer, self.num_rows - len(self._buffer)))
            self._buffer = []

    def _verify(self) -> None:
        if not self.num_rows:
            raise TraceError(f"no call was found for {self._path.name}: a trace has at least one.")
        self.table, findings = load(self._partial, self._path.name)
        for finding in findings:
            raise TraceError(finding.message)


def _table(rows: list[CallRow], first_row: int) -> pa.Table:
    arrays = []
    for column in COLUMNS:
        values = [getattr(row, column.name) for row in rows]
        try:
            arrays.append(from_values(values, column.type))
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            at, value = _culprit(values, column.type)
            raise TraceError(
                f"row {first_row + at}, column {column.name!r}: the value {value!r} does not fit"
                f" {column.type} ({error})."
            ) from None
    return pa.Table.from_arrays(arrays, schema=arrow_schema())


def _culprit(values: list[Any], kind: pa.DataType) -> tuple[int, Any]:
    for at, value in enumerate(values):
        try:
            from_values([value], kind)
        except (TypeError, ValueError, OverflowError, AttributeError):
            return at, value
    return 0, values[0]
