"""Reading the published tables: what is refused, and how rows measured twice are taken."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from v4calib.aic.source import Source, Table
from v4calib.errors import CalibError

NAME = "aiconfigurator_core-0.12.0-py3-none-any.whl"
INSIDE = "aiconfigurator_core/systems/data/b200_sxm/mhc/sglang/0.5.14/mhc_module_perf.parquet"


def wheel(folder: Path, name: str = NAME) -> Path:
    table = pa.table(
        {
            "op_name": ["pre", "pre", "pre", "post"],
            "num_tokens": [1, 1, 4, 1],
            "latency": [0.02, 0.04, 0.05, 0.01],
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(INSIDE, buffer.getvalue())
    return path


def read(path: Path) -> Table:
    with Source(path) as source:
        return source.table("b200", "mhc", "sglang", "0.5.14", "mhc_module_perf")


def test_latencies_become_microseconds_and_repeats_their_median(tmp_path: Path) -> None:
    rows = read(wheel(tmp_path)).where(op_name="pre").groups("num_tokens")
    assert rows == {(1,): pytest.approx(30.0), (4,): pytest.approx(50.0)}


def test_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CalibError, match=r"is not aiconfigurator-core 0\.12\.0"):
        Source(wheel(tmp_path, "aiconfigurator_core-0.13.0-py3-none-any.whl"))


def test_a_file_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_text("<html>not found</html>")
    with pytest.raises(CalibError, match="cannot be opened as a wheel"):
        Source(path)


def test_a_missing_table_and_column_are_named(tmp_path: Path) -> None:
    with Source(wheel(tmp_path)) as source:
        assert source.has("b200", "mhc", "sglang", "0.5.14", "mhc_module_perf")
        assert not source.has("h200", "mhc", "sglang", "0.5.14", "mhc_module_perf")
        with pytest.raises(CalibError, match="h200_sxm/mhc"):
            source.table("h200", "mhc", "sglang", "0.5.14", "mhc_module_perf")
    with pytest.raises(CalibError, match="no column 'hidden_size'"):
        read(wheel(tmp_path)).where(hidden_size=4096)
