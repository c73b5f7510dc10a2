"""JSON values of a document with the place of each, and checked reads of their fields.

A document is one JSON value or one value a line; its content decides, not its name. Messages name
file, line and key, never a value's text: logs hold prompts.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator
from typing import Any

from v4traces.errors import TraceError
from v4traces.sources import Document

_WORD = re.compile(rb"\S")


def json_values(document: Document) -> Iterator[tuple[str, Any]]:
    """Pairs of place and value. Raises `TraceError` for what is not JSON, or cut off."""
    if not _is_lines(document):
        text = _text(document, document.data)
        try:
            yield document.name, json.loads(text)
        except json.JSONDecodeError as error:
            # More values, or the first of several lines broken: the lines tell which.
            if not error.msg.startswith("Extra data") and "\n" not in text.strip():
                raise _not_json(document.name, error, len(text)) from None
        else:
            return
    yield from _lines(document)


def _is_lines(document: Document) -> bool:
    """Whether its first line is a value and not all of it: then a big file need not be decoded whole."""
    end = document.data.find(b"\n") + 1
    if not end or not _WORD.search(document.data, end):
        return False
    try:
        json.loads(_text(document, document.data[:end]))
    except json.JSONDecodeError:
        return False
    return True


def _lines(document: Document) -> Iterator[tuple[str, Any]]:
    begin = 0
    for number, line in enumerate(io.BytesIO(document.data), 1):
        text = _text(document, line, begin)
        begin += len(line)
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            if number > 1 and not line.endswith(b"\n"):
                raise TraceError(
                    f"{document.name}, line {number}: the last line is cut off, as after a broken download"
                    " or a running writer. Fetch the file again, or keep the whole lines with"
                    f" `head -n {number - 1}`."
                ) from None
            raise _not_json(f"{document.name}, line {number}", error, len(text)) from None
        yield f"{document.name}, line {number}", value


def _text(document: Document, data: bytes, begin: int = 0) -> str:
    """What `data`, which begins at this byte of the document, says."""
    try:
        return data.decode("utf-8" if begin else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(
            f"{document.name} is not UTF-8 text (byte {begin + error.start}), so it is no JSON. Is it packed"
            " in a way that is not read here? Unpack it first."
        ) from None


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
