"""Moves values between Python, numpy and arrow through their buffers.

pyarrow's own conversions (`pa.array`, `pa.scalar`, `to_numpy`, `fill_null`) look whether they were given
pandas objects, and import pandas to find out: 0.4 s at the start of every process that reads a trace.
These do not. They know the types of the trace schema: fixed width, bool, string, list and struct.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_DTYPES: dict[pa.DataType, Any] = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
}


def to_numpy(array: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """The values of a fixed-width or bool array. Where it is null, they mean nothing."""
    if isinstance(array, pa.ChunkedArray):
        parts = [to_numpy(chunk) for chunk in array.chunks]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    data = array.buffers()[1]
    if pa.types.is_boolean(array.type):
        return _bits(data, array.offset, len(array))
    values = np.frombuffer(data if data is not None else b"", dtype=_DTYPES[array.type])
    return values[array.offset : array.offset + len(array)]


def valid(array: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """Where an array of any type is not null."""
    if isinstance(array, pa.ChunkedArray):
        return np.concatenate([valid(chunk) for chunk in array.chunks])
    if array.null_count == 0:
        return np.ones(len(array), dtype=np.bool_)
    return to_numpy(array.is_valid())


def filled(array: pa.Array | pa.ChunkedArray, null: Any, dtype: Any) -> NDArray[Any]:
    """The values as `dtype`, `null` where there is none."""
    values = to_numpy(array).astype(dtype, copy=False)
    return np.where(valid(array), values, np.array(null, dtype)) if array.null_count else values


def _bits(data: pa.Buffer | None, start: int, count: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(data if data is not None else b"", dtype=np.uint8)
    bits = np.unpackbits(packed, count=start + count, bitorder="little")
    return bits[start:].view(np.bool_)


def from_values(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of Python values; None is null, structs are tuples in the order of their fields.

    Raises `TypeError`, `ValueError` or `OverflowError` for a value that is not of the type.
    """
    count = len(values)
    missing = values.count(None)
    given = values if not missing else [value for value in values if value is not None]
    validity = None
    if missing:
        present = np.fromiter((value is not None for value in values), np.bool_, count)
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        parts = [
            from_values([None if value is None else value[i] for value in values], field.type)
            for i, field in enumerate(fields)
        ]
        return pa.Array.from_buffers(kind, count, [validity], missing, children=parts)
    if pa.types.is_list(kind):
        entries = from_values([entry for value in given for entry in value], kind.value_type)
        offsets = _offsets([0 if value is None else len(value) for value in values])
        return pa.Array.from_buffers(kind, count, [validity, offsets], missing, children=[entries])
    if pa.types.is_string(kind):
        encoded = [b"" if value is None else value.encode() for value in values]
        data = pa.py_buffer(b"".join(encoded))
        return pa.Array.from_buffers(kind, count, [validity, _offsets([*map(len, encoded)]), data], missing)
    dense = _dense(given, kind)
    if missing:
        spread = np.zeros(count, dtype=dense.dtype)
        spread[present] = dense
        dense = spread
    if pa.types.is_boolean(kind):
        dense = np.packbits(dense, bitorder="little")
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(dense)], missing)


def _dense(given: list[Any], kind: pa.DataType) -> NDArray[Any]:
    count = len(given)
    if pa.types.is_boolean(kind):
        if any(type(value) is not bool for value in given):
            raise TypeError("it is not True or False")
        return np.fromiter(given, np.bool_, count)
    dtype = np.dtype(_DTYPES[kind])
    if dtype.kind == "f":
        return np.fromiter(map(operator.pos, given), dtype, count)
    wide = np.fromiter(map(operator.index, given), np.int64, count)
    limits = np.iinfo(dtype)
    if count and (wide.min() < limits.min or wide.max() > limits.max):
        raise OverflowError(f"it must lie between {limits.min} and {limits.max}")
    return wide.astype(dtype)


def _offsets(lengths: list[int]) -> pa.Buffer:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError("more than 2^31 bytes or entries in one row group")
    return pa.py_buffer(offsets.astype(np.int32))
