"""Reads the published kernel tables of NVIDIA's aiconfigurator: installed package or wheel file.

The tables are parquet files under `aiconfigurator_core/systems/data/<gpu>/<op>/<framework>/<version>/`.
Only columns of numbers and names come out, as numpy arrays; rows measured twice are reduced to their
median by `Table.groups`. Latencies become microseconds here, once, and stay so.

Leaves out: the package's own models and its support matrix. The package itself is never imported.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from v4calib.errors import CalibError

PACKAGE = "aiconfigurator-core"
VERSION = "0.12.0"
_ROOT = "aiconfigurator_core/systems/data"
FOLDERS = {
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
}


class Table:
    """Columns of one table, filtered by equality as often as needed."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], name: str) -> None:
        self.columns = columns
        self.name = name

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, column: str) -> NDArray[Any]:
        return self.columns[column]

    def where(self, **equal: Any) -> Table:
        """The rows whose columns equal the given values."""
        keep = np.ones(len(self), dtype=bool)
        for column, value in equal.items():
            if column not in self.columns:
                raise CalibError(f"Table {self.name} has no column {column!r}: it is of another version.")
            keep &= self.columns[column] == value
        return Table({k: v[keep] for k, v in self.columns.items()}, self.name)

    def groups(self, *axes: str, value: str = "us") -> dict[tuple[int, ...], float]:
        """Median of `value` for each combination of integer axes, in ascending order of them."""
        rows: dict[tuple[int, ...], list[float]] = {}
        keys = zip(*(self.columns[a].tolist() for a in axes), strict=True)
        for key, y in zip(keys, self.columns[value].tolist(), strict=True):
            rows.setdefault(tuple(int(k) for k in key), []).append(float(y))
        return {k: float(np.median(rows[k])) for k in sorted(rows)}

    def pairs(self, first: str, second: str) -> dict[tuple[int, int], float]:
        """`groups` over two axes."""
        return {(a, b): us for (a, b), us in self.groups(first, second).items()}


class Source:
    """The tables of one version of the package."""

    def __init__(self, wheel: Path | None = None) -> None:
        self._wheel = wheel
        self._zip: zipfile.ZipFile | None = None
        self._folder: Path | None = None
        self._names: frozenset[str] = frozenset()
        if wheel is not None:
            self._open_wheel(wheel)
        else:
            self._find_installed()

    def _open_wheel(self, wheel: Path) -> None:
        if f"-{VERSION}-" not in wheel.name:
            raise CalibError(
                f"{wheel.name} is not {PACKAGE} {VERSION}: the traps handled here are those of that version. "
                f"Get it with `pip download --no-deps {PACKAGE}=={VERSION}`."
            )
        try:
            self._zip = zipfile.ZipFile(wheel)
        except (OSError, zipfile.BadZipFile) as error:
            raise CalibError(
                f"{wheel} cannot be opened as a wheel: {error}. Download it again with "
                f"`pip download --no-deps {PACKAGE}=={VERSION}`."
            ) from None
        self._names = frozenset(self._zip.namelist())

    def _find_installed(self) -> None:
        try:
            distribution = metadata.distribution(PACKAGE)
        except metadata.PackageNotFoundError:
            raise CalibError(
                f"{PACKAGE} {VERSION} is not installed: run `pip install 'v4sim[aiconfigurator]'`, or give "
                "the wheel with --wheel FILE."
            ) from None
        if distribution.version != VERSION:
            raise CalibError(
                f"{PACKAGE} {distribution.version} is installed; the traps handled here are those of "
                f"{VERSION}: run `pip install {PACKAGE}=={VERSION}`."
            )
        self._folder = Path(str(distribution.locate_file("")))

    def has(self, gpu: str, op: str, framework: str, version: str, table: str) -> bool:
        name = self._path(gpu, op, framework, version, table)
        return name in self._names if self._folder is None else (self._folder / name).is_file()

    def table(self, gpu: str, op: str, framework: str, version: str, table: str) -> Table:
        """One table with `latency` (ms) as `us`; CalibError where the package has none."""
        name = self._path(gpu, op, framework, version, table)
        try:
            raw: Any
            if self._zip is not None:
                raw = io.BytesIO(self._zip.read(name))
            else:
                assert self._folder is not None
                raw = self._folder / name
            arrow = pq.read_table(raw)
        except (KeyError, OSError) as error:
            raise CalibError(f"{PACKAGE} {VERSION} has no table {name}: {error}.") from None
        columns = {c: arrow.column(c).to_numpy(zero_copy_only=False) for c in arrow.column_names}
        if "latency" in columns:
            columns["us"] = columns.pop("latency") * 1000.0
        return Table(columns, name)

    @staticmethod
    def _path(gpu: str, op: str, framework: str, version: str, table: str) -> str:
        return f"{_ROOT}/{FOLDERS[gpu]}/{op}/{framework}/{version}/{table}.parquet"

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        if self._zip is not None:
            self._zip.close()


def each_gpu() -> Iterator[str]:
    """The GPUs that have a reference profile."""
    yield from FOLDERS
