"""Nested facts as text for a person or as JSON for a machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def as_json_text(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, indent=1, ensure_ascii=False, default=_plain)


def key_values(facts: Mapping[str, Any]) -> str:
    """One line per fact, sections indented, values of a section in one column."""
    return "\n".join(_lines(facts, 0))


def _lines(facts: Mapping[str, Any], depth: int) -> Iterator[str]:
    indent = "  " * depth
    width = max((len(str(key)) for key, value in facts.items() if not isinstance(value, Mapping)), default=0)
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}"
            yield from _lines(value, depth + 1)
        else:
            yield f"{indent}{key:<{width}}  {_value(value)}".rstrip()


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, list | tuple):
        return ", ".join(_value(item) for item in value) or "none"
    return str(value)


def _plain(value: Any) -> Any:
    """Numpy scalars and arrays, and anything else that knows its plain form."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
