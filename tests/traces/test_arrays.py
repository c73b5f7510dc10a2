"""Conversions through buffers against pyarrow's own, and that they leave pandas alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4traces.arrays import filled, from_values, to_numpy, valid

_PAIR = pa.struct([("name", pa.string()), ("count", pa.int32())])
_VALUES = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=5),
    pa.list_(pa.float32()): st.lists(st.floats(width=32, allow_nan=False), max_size=3),
    _PAIR: st.tuples(st.text(max_size=3), st.none() | st.integers(0, 9)),
    pa.list_(_PAIR): st.lists(st.tuples(st.text(max_size=3), st.integers(0, 9)), max_size=3),
}
_FIXED = [pa.int32(), pa.int64(), pa.float64(), pa.float32(), pa.bool_()]


def _plain(value, kind):
    """The value as pyarrow wants it: structs as dicts."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_plain(entry, kind.value_type) for entry in value]
    if pa.types.is_struct(kind):
        return {kind.field(i).name: entry for i, entry in enumerate(value)}
    return value


@given(data=st.data(), kind=st.sampled_from(list(_VALUES)))
def test_arrays_of_values_are_those_of_pyarrow(data, kind):
    values = data.draw(st.lists(st.none() | _VALUES[kind], max_size=20))
    made = from_values(values, kind)
    made.validate(full=True)
    assert made.equals(pa.array([_plain(value, kind) for value in values], kind))
    assert made.null_count == values.count(None)


@given(data=st.data(), kind=st.sampled_from(_FIXED))
def test_values_come_back_from_slices_and_chunks(data, kind):
    values = data.draw(st.lists(st.none() | _VALUES[kind], min_size=1, max_size=40))
    start = data.draw(st.integers(0, len(values) - 1))
    cut = data.draw(st.integers(start, len(values)))
    whole = pa.array(values, kind)
    chunked = pa.chunked_array([whole[start:cut], whole[cut:]], kind)
    expected = values[start:]
    there = [value is not None for value in expected]
    null = False if kind == pa.bool_() else 7
    for array in (whole[start:], chunked):
        assert valid(array).tolist() == there
        assert filled(array, null, to_numpy(array).dtype).tolist() == [
            null if value is None else value for value in expected
        ]
        assert to_numpy(array)[there].tolist() == [value for value in expected if value is not None]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, pa.int32()),
        ("1", pa.int32()),
        (2**31, pa.int32()),
        (-(2**31) - 1, pa.int32()),
        (2**63, pa.int64()),
        ("1.5", pa.float64()),
        (1, pa.bool_()),
        ("yes", pa.bool_()),
        (5, pa.string()),
        (b"x", pa.string()),
        (3, pa.list_(pa.int32())),
        ([1.5], pa.list_(pa.int32())),
    ],
)
def test_a_value_of_another_type_is_an_error_never_a_cast(value, kind):
    with pytest.raises((TypeError, ValueError, OverflowError, AttributeError)):
        from_values([None, value], kind)


def test_numpy_numbers_are_numbers():
    assert from_values([np.int64(5), np.int32(6)], pa.int32()).to_pylist() == [5, 6]
    assert from_values([np.float32(0.5), 2], pa.float64()).to_pylist() == [0.5, 2.0]


def test_a_trace_is_written_and_read_without_pandas(tmp_path):
    script = (
        "import sys\n"
        "from v4traces import CallRow, CallRef, TraceMetadata, TraceWriter, read_table, check_trace\n"
        "rows = [CallRow(session_id='a', turn=n, prompt_tokens=9, output_tokens=2,\n"
        " model='m' if n else None,\n"
        " after=(CallRef('a', 0),) if n == 2 else None) for n in range(3)]\n"
        f"with TraceWriter({str(tmp_path / 't')!r}, TraceMetadata('t', 'synthetic')) as writer:\n"
        "    writer.append(rows)\n"
        f"assert check_trace(read_table({str(tmp_path / 't')!r})) == []\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
