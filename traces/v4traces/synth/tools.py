"""Which tool ran before a call and how long it took.

A client's gap holds the tool's latency plus its own work and permission waits, so latency never exceeds
the gap. Both marginals are given and only the order is free: ranks of gap and latency fall into the same
band and are independent within it (an ordinal sum), which keeps the published latency mixture, timeout
atom included, and the measured gaps exact. Latencies are seconds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from v4traces.synth.params import SynthParams
from v4traces.synth.tool_tables import CLASSES_BY_LATENCY, LATENCY_BANDS, TIMEOUT_S

Floats = NDArray[np.float64]

_BANDS = np.array(LATENCY_BANDS)
_UPPER = [band.below_s for band in CLASSES_BY_LATENCY]
_NAMES = sorted({name for band in CLASSES_BY_LATENCY for name, _ in band.shares})
_SHELL = _NAMES.index("shell")


def _cumulative() -> Floats:
    """Per latency class, P(tool <= k) over the sorted names of tools."""
    table = np.zeros((len(CLASSES_BY_LATENCY), len(_NAMES)))
    for row, band in enumerate(CLASSES_BY_LATENCY):
        for name, share in band.shares:
            table[row, _NAMES.index(name)] = share
    table = np.cumsum(table, axis=1)
    table[:, -1] = 1.0
    return table


_CUMULATIVE = _cumulative()


def latencies(gap_ranks: Floats, drawn: Floats, params: SynthParams) -> Floats:
    """Tool latency of calls whose gaps have the given ranks."""
    band = np.clip(np.searchsorted(_BANDS, gap_ranks, side="right") - 1, 0, _BANDS.size - 2)
    low = _BANDS[band]
    return params.tool_latency_s.at(low + (_BANDS[band + 1] - low) * drawn)


def classes(latency_s: Floats, drawn: Floats) -> list[str]:
    """The tool behind each latency."""
    table = _CUMULATIVE[np.searchsorted(_UPPER, latency_s, side="right")]
    code = (drawn[:, None] >= table).sum(axis=1)
    code[latency_s == TIMEOUT_S] = _SHELL
    return [_NAMES[at] for at in code.tolist()]
