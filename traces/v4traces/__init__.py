"""Traces of coding-agent traffic: one schema, its laws, importers, statistics.

Names below load on first use, so that `import v4traces.errors` (and every `--help`) costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from v4traces.check import check_trace
    from v4traces.errors import TraceError, V4Error
    from v4traces.laws import Finding
    from v4traces.read import read_table
    from v4traces.rows import Acceptance, CachedTokens, CallRef, CallRow, Phase, TraceMetadata
    from v4traces.schema import PHASES, TRIGGERS
    from v4traces.table import TraceTable
    from v4traces.write import TraceWriter

_HOME = {
    "Acceptance": "rows",
    "CachedTokens": "rows",
    "CallRef": "rows",
    "CallRow": "rows",
    "Finding": "laws",
    "PHASES": "schema",
    "Phase": "rows",
    "TRIGGERS": "schema",
    "TraceError": "errors",
    "TraceMetadata": "rows",
    "TraceTable": "table",
    "TraceWriter": "write",
    "V4Error": "errors",
    "check_trace": "check",
    "read_table": "read",
}

__all__ = [
    "PHASES",
    "TRIGGERS",
    "Acceptance",
    "CachedTokens",
    "CallRef",
    "CallRow",
    "Finding",
    "Phase",
    "TraceError",
    "TraceMetadata",
    "TraceTable",
    "TraceWriter",
    "V4Error",
    "check_trace",
    "read_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'v4traces' has no attribute {name!r}")
    value = getattr(import_module(f"v4traces.{_HOME[name]}"), name)
    globals()[name] = value
    return value
