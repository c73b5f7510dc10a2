"""From a finished run to the figures of `result.json`.

`summarise` puts everything together; the modules beside it each compute one entry of METRICS from call
columns or engine totals. It loads on first use: the engine's own observers live here too and must not
pull in the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from v4sim.metrics.summary import Summary, summarise

__all__ = ["Summary", "summarise"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from v4sim.metrics import summary

        return getattr(summary, name)
    raise AttributeError(f"module 'v4sim.metrics' has no attribute {name!r}")
