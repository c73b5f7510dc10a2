"""A read-only view of a JSON object that knows where it stands in its file.

Every getter returns None (or an empty container) for a key that is absent or null: the report leaves out
what a run does not know. A value of the wrong type is never guessed at; the error names file and key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from v4sim.errors import RunError


@dataclass(frozen=True, slots=True)
class View:
    """One JSON object, the file it comes from and the dotted path that leads to it."""

    data: dict[str, Any]
    file: str
    path: str = ""

    def __contains__(self, key: str) -> bool:
        return self.data.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def key_path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def wrong(self, key: str, expected: str) -> RunError:
        shown = json.dumps(self.data.get(key), sort_keys=True)
        if len(shown) > 60:
            shown = shown[:57] + "..."
        return RunError(
            f"{self.file}: `{self.key_path(key)}` is {shown}, but {expected} must stand there. "
            "Run `v4sim replay` again to write the file anew; it is not meant to be edited."
        )

    def number(self, key: str) -> float | None:
        """A finite number; null, NaN and infinity all mean that the run does not know it."""
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, "a number")
        return float(value) if math.isfinite(value) else None

    def count(self, key: str) -> int | None:
        value = self.number(key)
        return None if value is None else round(value)

    def text(self, key: str) -> str:
        value = self.data.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(key, "a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; a single text counts as a list of one."""
        value = self.data.get(key)
        if value is None or value == "":
            return ()
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "a text or a list of texts")
        return tuple(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        value = self.data.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(
            isinstance(item, int | float) and not isinstance(item, bool) for item in value
        ):
            raise self.wrong(key, "a list of numbers")
        return tuple(float(item) for item in value)

    def child(self, key: str) -> View:
        """The object under `key`; an empty one when there is none."""
        value = self.data.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return View(value, self.file, self.key_path(key))

    def children(self, key: str) -> tuple[View, ...]:
        """The objects of the list under `key`, in file order."""
        value = self.data.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(key, "a list of objects")
        return tuple(View(item, self.file, f"{self.key_path(key)}[{i}]") for i, item in enumerate(value))

    def named(self, key: str) -> dict[str, View]:
        """The objects of the object under `key` by name, in file order."""
        parent = self.child(key)
        return {name: parent.child(name) for name in parent if name in parent}

    def number_map(self, key: str) -> dict[str, float]:
        """The finite numbers of the object under `key` by name, in file order."""
        parent = self.child(key)
        pairs = ((name, parent.number(name)) for name in parent)
        return {name: value for name, value in pairs if value is not None}


def read_object(path: Path) -> View:
    """Read a JSON file whose top level is an object. Raises RunError naming the file and the rule."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunError(
            f"{path.parent} is not a run directory: it holds no {path.name}. "
            "Give the directory that `v4sim replay TRACE -o DIR` wrote."
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RunError(
            f"{path}: cannot be read as JSON ({error}). Run `v4sim replay` again to write it anew."
        ) from error
    if not isinstance(data, dict):
        raise RunError(f"{path}: the top level is a {type(data).__name__}, but an object must stand there.")
    return View(data, path.name)
