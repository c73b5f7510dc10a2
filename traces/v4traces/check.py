"""All findings about a trace: broken laws first, then what a user should know before trusting it."""

from __future__ import annotations

from v4traces.laws import Finding, broken_laws
from v4traces.table import TraceTable


def check_trace(table: TraceTable) -> list[Finding]:
    """Findings of severity "error" (a broken law) and "warning" (legal, but suspicious)."""
    return list(broken_laws(table))
