"""JSON values of a document with the place of each, and checked reads of their fields.

A document is one JSON value or one value a line; its content decides, not its name. Messages name
file, line and key, never a value's text: logs hold prompts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from v4traces.errors import TraceError
from v4traces.sources import Document


def json_values(document: Document) -> Iterator[tuple[str, Any]]:
    """Pairs of place and value. Raises `TraceError` for what is not JSON, or cut off."""
    try:
        text = document.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(
            f"{document.name} is not UTF-8 text (byte {error.start}), so it is no JSON. Is it packed in a way"
            " that is not read here? Unpack it first."
        ) from None
    try:
        yield document.name, json.loads(text)
    except json.JSONDecodeError as error:
        # More values, or the first of several lines broken: the lines tell which.
        if not error.msg.startswith("Extra data") and "\n" not in text.strip():
            raise _not_json(document.name, error, len(text)) from None
    else:
        return
    yield from _lines(document.name, text)


def _lines(name: str, text: str) -> Iterator[tuple[str, Any]]:
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines) and number > 1 and not text.endswith("\n"):
                raise TraceError(
                    f"{name}, line {number}: the last line is cut off, as after a broken download or a"
                    f" running writer. Fetch the file again, or keep the whole lines"
                    f" with `head -n {number - 1}`."
                ) from None
            raise _not_json(f"{name}, line {number}", error, len(line)) from None
        yield f"{name}, line {number}", value


def _not_json(where: str, error: json.JSONDecodeError, size: int) -> TraceError:
    cut = " It ends too early: it is probably cut off." if error.pos >= size - 1 else ""
    return TraceError(
        f"{where} is not JSON ({error.msg} at character {error.pos}).{cut} Fetch or export it again."
    )


def count(record: dict[str, Any], key: str, where: str) -> int:
    """A number of tokens: a whole number from 0 up."""
    value = record.get(key)
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or value != value
        or value != int(value)
    ):
        raise TraceError(f"{where}: `{key}` is {_shown(value)}; it must be a whole number.")
    if value < 0:
        raise TraceError(f"{where}: `{key}` is {value}; it must not be negative.")
    return int(value)


def seconds(record: dict[str, Any], key: str, where: str) -> float | None:
    """A finite number, None if missing or null. Negative ones are the caller's to judge."""
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TraceError(f"{where}: `{key}` is {_shown(value)}; it must be a finite number.")
    return float(value)


def _shown(value: object) -> str:
    """Numbers as they are; of anything else only the type, since it may be text of a prompt."""
    return (
        repr(value) if value is None or isinstance(value, (bool, int, float)) else f"a {type(value).__name__}"
    )
