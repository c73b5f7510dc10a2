"""Random numbers addressed by key instead of drawn from a shared generator.

A draw is a pure function of (seed, item, purpose, index). Adding a consumer shifts nobody else's
numbers, two configurations that replay the same trace see the same luck (common random numbers),
and the order in which the simulator asks does not matter. The mixer is SplitMix64 (Steele, Lea,
Flood 2014): a counter-based generator whose output function passes BigCrush.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_MASK: Final = (1 << 64) - 1
_GAMMA: Final = 0x9E3779B97F4A7C15
_U64 = np.uint64
_GAMMA_U64 = _U64(_GAMMA)
_M1, _M2 = _U64(0xBF58476D1CE4E5B9), _U64(0x94D049BB133111EB)
_ONE = _U64(1)
_S30, _S27, _S31, _S11 = _U64(30), _U64(27), _U64(31), _U64(11)
_TO_UNIT = 2.0**-53

# Purposes are small constants so that a stream's address is readable in a debugger.
ACCEPTANCE = 1
ARRIVAL = 2
ROUTING = 3
PROFILE = 4
RESAMPLE = 5
WORKLOAD = 6


def mix(*parts: int) -> int:
    """Fold integers into one 64-bit key; the order of the parts matters."""
    key = 0
    for part in parts:
        key = (key + _GAMMA + (part & _MASK)) & _MASK
        key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & _MASK
        key ^= key >> 31
    return key


def uniforms(key: int, count: int, first: int = 0) -> NDArray[np.float64]:
    """`count` numbers in [0, 1) at indices first, first+1, … of the stream `key`."""
    return uniforms_at(_U64(key), np.arange(first, first + count))


def uniforms_at(keys: NDArray[np.uint64] | np.uint64, indices: NDArray[np.int64]) -> NDArray[np.float64]:
    """The numbers at `indices` of the streams `keys` (one key, or one for each index)."""
    z = indices.astype(_U64)
    z += _ONE
    z *= _GAMMA_U64
    z += keys
    z ^= z >> _S30
    z *= _M1
    z ^= z >> _S27
    z *= _M2
    z ^= z >> _S31
    z >>= _S11
    return z.astype(np.float64) * _TO_UNIT


def uniform(key: int, index: int = 0) -> float:
    """One number in [0, 1), equal to `uniforms(key, 1, index)[0]`."""
    z = (key + (index + 1) * _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z ^= z >> 31
    return (z >> 11) * _TO_UNIT
