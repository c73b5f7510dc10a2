"""Logs of a running engine against its prediction: join, fit the few engine constants, compare."""

from __future__ import annotations

from v4sim.observe.compare import Comparison, compare
from v4sim.observe.fit import Constant, Fit, fit
from v4sim.observe.formats import FORMATS, read_logs
from v4sim.observe.join import Joined, join
from v4sim.observe.seen import Seen

__all__ = [
    "FORMATS",
    "Comparison",
    "Constant",
    "Fit",
    "Joined",
    "Seen",
    "compare",
    "fit",
    "join",
    "read_logs",
]
