"""Turns the columns of an arrow table into numpy arrays and codes, checking types on the way.

Works on whole columns. A column that is absent or all null becomes a read-only view of one value, so
that the twenty columns a trace rarely has cost nothing per row.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from v4traces.arrays import filled, to_numpy, valid
from v4traces.errors import TraceError
from v4traces.schema import COLUMN_NAMES, COLUMNS, Column

_BY_NAME = {column.name: column for column in COLUMNS}
Take = Callable[[Column], "pa.ChunkedArray | None"]


def check_names(names: list[str], file: str) -> None:
    """Raise if the file lacks a required column or has one that the schema does not know."""
    for name in names:
        if name not in _BY_NAME:
            near = get_close_matches(name, COLUMN_NAMES, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise TraceError(
                f"{file} has the unknown column {name!r}: {hint}Legal columns: {', '.join(COLUMN_NAMES)}."
                " Rename or drop it; unknown columns are never copied or ignored."
            )
        if names.count(name) > 1:
            raise TraceError(f"{file} has the column {name!r} twice. Keep one of them.")
    for column in COLUMNS:
        if not column.nullable and column.name not in names:
            raise TraceError(
                f"{file} has no column {column.name!r}, which every call needs. Write the file with"
                " v4traces.TraceWriter or `v4traces import`."
            )


def conform(values: pa.ChunkedArray, column: Column, file: str) -> pa.ChunkedArray:
    """The column in its own type, or an error: no value may change or be lost by the cast."""
    wanted: pa.DataType = column.type
    if pa.types.is_string(wanted) and pa.types.is_dictionary(values.type):
        wanted = pa.dictionary(pa.int32(), pa.string())
    if values.type != wanted:
        try:
            values = values.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            reason = str(error).splitlines()[0]
            raise TraceError(
                f"{file}, column {column.name!r}: the values are {values.type} and do not fit the schema's"
                f" {column.type} ({reason}). Write the column as {column.type}."
            ) from None
    if values.null_count and not column.nullable:
        row = int(np.argmin(valid(values)))
        raise TraceError(
            f"{file}, row {row}, column {column.name!r}: the value is null, but every call must have one."
            " Fill it in or drop the call."
        )
    return values


def field_numbers(structs: pa.Array, name: str, null: int) -> NDArray[np.int64]:
    """A number of each struct, `null` where the struct or the number is missing."""
    return filled(pc.struct_field(structs, name), null, np.int64)


class Columns:
    """Numpy views of the columns of one file. `take` yields a conformed column, or None if absent."""

    def __init__(self, n: int, take: Take) -> None:
        self._n = n
        self._take = take

    def _get(self, name: str) -> pa.ChunkedArray | None:
        values = self._take(_BY_NAME[name])
        return None if values is None or values.null_count == self._n else values

    def _constant(self, value: Any, dtype: Any) -> NDArray[Any]:
        return np.broadcast_to(np.array(value, dtype=dtype), (self._n,))

    def numbers(self, name: str, null: Any, dtype: Any) -> NDArray[Any]:
        """A numeric or boolean column; `null` stands for missing values."""
        values = self._get(name)
        if values is None:
            return self._constant(null, dtype)
        return filled(values, null, dtype)

    def present(self, name: str) -> NDArray[np.bool_]:
        """Where the column has a value."""
        values = self._get(name)
        if values is None:
            return self._constant(False, np.bool_)
        return valid(values)

    def codes(self, name: str) -> tuple[NDArray[np.int32], list[str]]:
        """A string column as codes and names, in order of first appearance; -1 for null."""
        values = self._get(name)
        if values is None:
            return self._constant(-1, np.int32), []
        if not pa.types.is_dictionary(values.type):
            values = values.dictionary_encode()
        merged = values.unify_dictionaries().combine_chunks()
        if isinstance(merged, pa.ChunkedArray):  # older pyarrow keeps a single chunk wrapped
            merged = merged.chunk(0)
        codes = filled(merged.indices, -1, np.int32)
        names = merged.dictionary.to_pylist()
        # A dictionary may hold names out of order or unused; order of appearance is what repeats.
        used, first = np.unique(codes, return_index=True)
        kept = used[np.argsort(first, kind="stable")]
        kept = kept[kept >= 0]
        if kept.size == len(names) and np.array_equal(kept, np.arange(kept.size)):
            return codes, names
        recode = np.full(len(names) + 1, -1, dtype=np.int32)
        recode[kept] = np.arange(kept.size, dtype=np.int32)
        return recode[codes], [names[code] for code in kept.tolist()]

    def choices(self, name: str, legal: tuple[str, ...], file: str) -> NDArray[np.int8]:
        """A string column whose values are indices into `legal`."""
        codes, names = self.codes(name)
        index = self._legal(names, legal, name, file, lambda code: int(np.argmax(codes == code)))
        return index[codes] if names else self._constant(-1, np.int8)

    def lists(self, name: str) -> tuple[NDArray[np.int64], pa.Array | None]:
        """A list column as offsets[n + 1] and the flat values; null and empty lists have no entries."""
        values = self._get(name)
        if values is None:
            return np.zeros(self._n + 1, dtype=np.int64), None
        flat = pa.concat_arrays([chunk.flatten() for chunk in values.chunks])
        offsets = np.zeros(self._n + 1, dtype=np.int64)
        np.cumsum(filled(pc.list_value_length(values), 0, np.int64), out=offsets[1:])
        return offsets, flat

    def structs(self, name: str) -> pa.Array | None:
        """A struct column as one array, or None."""
        values = self._get(name)
        return None if values is None else pa.concat_arrays(values.chunks)

    def struct_numbers(self, structs: pa.Array | None, name: str, null: int) -> NDArray[np.int64]:
        """A number of a struct column, `null` where the struct or the number is missing."""
        if structs is None:
            return np.asarray(self._constant(null, np.int64))
        return field_numbers(structs, name, null)

    def kinds(
        self, flat: pa.Array, offsets: NDArray[np.int64], name: str, legal: tuple[str, ...], file: str
    ) -> NDArray[np.int8]:
        """The `kind` field of the structs of a list column, as indices into `legal`."""

        def row_of(entry: int) -> int:
            return int(np.searchsorted(offsets, entry, side="right")) - 1

        encoded = pc.struct_field(flat, "kind").dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if encoded.null_count:
            row = row_of(pc.index(encoded.is_null(), True).as_py())
            raise TraceError(
                f"{file}, row {row}, column {name!r}: a kind is null. Legal kinds: {', '.join(legal)}."
            )
        codes = to_numpy(encoded.indices)
        index = self._legal(names, legal, name, file, lambda code: row_of(int(np.argmax(codes == code))))
        kinds: NDArray[np.int8] = index[codes]
        return kinds

    @staticmethod
    def _legal(
        names: list[str], legal: tuple[str, ...], column: str, file: str, row_of: Callable[[int], int]
    ) -> NDArray[np.int8]:
        """What each name is in `legal`; `row_of` finds the first row of a name's code, for the error."""
        for code, value in enumerate(names):
            if value not in legal:
                raise TraceError(
                    f"{file}, row {row_of(code)}, column {column!r} has the value {value!r}; it must be one"
                    f" of {', '.join(legal)}."
                )
        return np.array([legal.index(value) for value in names], dtype=np.int8)
