"""The walk of one call by a loop over its steps, for compiled code; what `speculation.walk` makes of arrays.

Units: output positions, tokens.
"""

from __future__ import annotations

import numpy as np
from librt.strings import read_f64_le, read_i64_le
from librt.vecs import append, vec
from mypy_extensions import i64
from numpy.typing import NDArray


class Luck:
    """The draws of neighbouring outputs, one after the other, and the rates that they are held against.

    `draws` [positions] are float64 in [0, 1) and `phases` [positions] the phase codes as int64, both as
    bytes; None: all are of the phase `default`. `rates` [phases, drafts] are flat.
    """

    def __init__(
        self, draws: bytes, phases: bytes | None, rates: list[float], drafts: int, default: int
    ) -> None:
        self._draws = draws
        self._phases = phases
        self._rates: vec[float] = vec[float](rates)
        self._drafts: i64 = drafts
        self._default: i64 = default

    def walk(self, begin: int, output_tokens: int) -> NDArray[np.int64]:
        """Emitted tokens at the start of each decode step, from 1 on, of the output that lies at `begin`.

        A step yields a token, and the drafts before it that luck lets pass, in order.
        """
        draws, phases, rates = self._draws, self._phases, self._rates
        drafts, phase = self._drafts, self._default
        first: i64 = begin
        end: i64 = output_tokens
        starts = vec[i64]()
        at: i64 = 1
        while at < end:
            starts = append(starts, at)
            accepted: i64 = 0
            while accepted < drafts and at + accepted < end:
                place = (first + at + accepted) * 8
                if phases is not None:
                    phase = read_i64_le(phases, place)
                if read_f64_le(draws, place) >= rates[phase * drafts + accepted]:
                    break
                accepted += 1
            at += accepted + 1
        return np.frombuffer(memoryview(starts), np.int64)
