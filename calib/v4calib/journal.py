"""The rows of a run on disk: one JSON object a line, flushed as measured, so that a crash loses one row.

The first line is the header: device, grid, operations, models, seed. A run resumes only under the same
header; a last line cut short by a crash is dropped, any other broken line is an error. Rows of a shape that
failed stay in the file with their reason: they are what the run found out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from v4calib.device import DeviceFacts
from v4calib.errors import CalibError
from v4calib.rows import Row

SCHEMA_VERSION = 2
_SAME = ("schema_version", "grid", "operations", "models", "seed", "passes")


@dataclass(frozen=True, slots=True)
class Header:
    """What a run was asked for, on what."""

    facts: DeviceFacts
    grid: str
    operations: tuple[str, ...]
    models: tuple[str, ...]
    seed: int
    passes: int
    started: str  # UTC, ISO 8601; given by the command
    commit: str | None
    schema_version: int = SCHEMA_VERSION

    def as_dict(self) -> dict[str, Any]:
        data = {s: getattr(self, s) for s in self.__slots__}
        return data | {
            "facts": self.facts.as_dict(),
            "operations": list(self.operations),
            "models": list(self.models),
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Header:
        return cls(
            **{
                **data,
                "facts": DeviceFacts.of(data["facts"]),
                "operations": tuple(data["operations"]),
                "models": tuple(data["models"]),
            }
        )

    def differs(self, other: Header) -> str | None:
        """The first thing that makes rows of one run no rows of the other."""
        mine, theirs = self.as_dict(), other.as_dict()
        for name in _SAME:
            if mine[name] != theirs[name]:
                return f"{name} is {theirs[name]!r} there and {mine[name]!r} now"
        for name in ("name", "gpu", "driver", "libraries"):
            if mine["facts"][name] != theirs["facts"][name]:
                return f"{name} is {theirs['facts'][name]!r} there and {mine['facts'][name]!r} now"
        return None


def read_journal(path: Path) -> tuple[Header, list[Row]]:
    """Header and rows of a journal."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise CalibError(f"{path}: there is no such file of rows; `v4calib run` writes it.") from None
    except UnicodeDecodeError as error:
        raise CalibError(f"{path} is not UTF-8 text ({error}): it is no file of rows.") from None
    complete, rest = lines[:-1], lines[-1]
    parsed = []
    for number, line in enumerate(complete, 1):
        try:
            parsed.append(json.loads(line))
        except ValueError:
            if number == len(complete) and not rest:
                break  # a torn write that happened to end in a line break
            raise CalibError(
                f"{path} line {number} is not JSON: remove the line, or measure again without --resume."
            ) from None
    try:
        header = Header.of(parsed[0])
        rows = [Row.of(data) for data in parsed[1:]]
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise CalibError(
            f"{path} is no file of rows written by this version ({type(error).__name__}: {error}): measure "
            "again without --resume."
        ) from None
    if header.schema_version != SCHEMA_VERSION:
        raise CalibError(
            f"{path} has schema version {header.schema_version}, this version reads {SCHEMA_VERSION}."
        )
    return header, rows


class Journal:
    """Appends rows; a context manager. `rows` are those already there when it resumes."""

    def __init__(self, path: Path, header: Header, *, resume: bool, force: bool = False) -> None:
        self.path, self.header = path, header
        self.rows: list[Row] = []
        exists = path.exists()
        if exists and resume:
            found, self.rows = read_journal(path)
            different = header.differs(found)
            if different:
                raise CalibError(
                    f"{path} cannot be resumed: {different}. Give the options of the first run, or another "
                    "output."
                )
            self.header = found
        elif exists and not force:
            raise CalibError(f"{path} exists: continue it with --resume, or replace it with --force.")
        self._resumed = exists and resume
        self._file: IO[str] | None = None

    def __enter__(self) -> Journal:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Written anew when resumed, so that a torn last line is gone before rows follow it.
        partial = self.path.with_name(f".{self.path.name}.partial")
        with partial.open("w", encoding="utf-8") as file:
            for data in (self.header.as_dict(), *(row.as_dict() for row in self.rows)):
                file.write(_line(data))
        os.replace(partial, self.path)
        self._file = self.path.open("a", encoding="utf-8")
        return self

    def append(self, row: Row) -> None:
        assert self._file is not None, "a journal is entered before it is written"
        self._file.write(_line(row.as_dict()))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.rows.append(row)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def _line(data: Mapping[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":")) + "\n"
