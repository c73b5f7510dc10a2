"""Random numbers that do not depend on who else draws.

A stream is named by (seed, session, purpose) and indexed by call, so a new consumer, one more call or
one more session shifts nothing that was there before. The generator is splitmix64 over a counter:
integer arithmetic only, the same on every machine and numpy. Left out: anything but uniforms in [0, 1);
distributions are tables (`quantiles.py`).
"""

from __future__ import annotations

from enum import IntEnum
from math import isqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: the increment of splitmix64
_UNIT = 2.0**-53
_RISING = np.arange(1, 4097, dtype=np.uint64) * np.uint64(_STEP)


class Purpose(IntEnum):
    """What a stream is for. Append new ones: a number once used keeps its meaning."""

    USER = 1
    GAP = 2
    OUTPUT = 3
    EXTRA = 4
    EVENT = 5
    EVENT_SIZE = 6
    EVENT_SHARE = 7
    SHAPE = 8
    SPLIT = 9
    TOOL = 10
    LATENCY = 11
    RECOVERY = 12
    SUBAGENT = 13
    DROP = 14
    TAIL = 15
    GROUP = 16
    ARRIVAL = 17
    SHIFT = 18


class Trait(IntEnum):
    """What varies between sessions; the value is the prime whose root spaces the points."""

    START = 2
    CALLS = 3
    WINDOW = 5
    USER_SHARE = 7
    GROUP = 11
    SUBAGENTS = 13
    OUTPUT = 17
    EXTRA = 19
    TOOL_GAP = 23
    USER_GAP = 29
    COMPACTS = 31


def _mix(value: int) -> int:
    """The finaliser of splitmix64: every input bit reaches every output bit."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


_SPACING = {trait: isqrt(trait.value << 128) & _MASK for trait in Trait}


class Streams:
    """All random numbers of one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = _mix((seed & _MASK) ^ _STEP)
        self._shift = {trait: _mix(self._seed ^ _mix((Purpose.SHIFT << 32) + trait.value)) for trait in Trait}

    def uniforms(self, session: int, purpose: Purpose, count: int, child: int = 0) -> Floats:
        """`count` numbers in [0, 1). `child` tells the sub-agents of a session apart."""
        key = _mix(self._seed + _mix(session * _STEP & _MASK) & _MASK)
        key = _mix(key ^ ((child << 16) + purpose))
        rising = (
            _RISING if count <= _RISING.size else np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_STEP)
        )
        bits = rising[:count] + np.uint64(key)
        bits ^= bits >> np.uint64(30)
        bits *= np.uint64(0xBF58476D1CE4E5B9)
        bits ^= bits >> np.uint64(27)
        bits *= np.uint64(0x94D049BB133111EB)
        bits ^= bits >> np.uint64(31)
        return (bits >> np.uint64(11)).astype(np.float64) * _UNIT

    def trait(self, session: int, trait: Trait) -> float:
        """Where the session stands on one trait, in [0, 1).

        Points of a Richtmyer sequence (multiples of the root of a prime, modulo 1) with a shift from
        the seed: any run of sessions covers [0, 1) evenly, so that the marginals of a small trace
        are those of a large one.
        """
        return ((self._shift[trait] + (session + 1) * _SPACING[trait]) & _MASK) / 2.0**64


def blend(own: float | Floats, drawn: Floats, weight: float) -> Floats:
    """Uniforms that lean towards `own`: weight·own + (1 − weight)·drawn, made uniform again.

    If `own` is uniform over sessions the result is uniform over calls, and two calls of a session
    have the rank correlation w² / (w² + (1 − w)²).
    """
    small, large = sorted((weight, 1.0 - weight))
    mixed = weight * own + (1.0 - weight) * drawn
    if small == 0.0:
        return mixed
    scale = 1.0 / (2.0 * small * large)
    # The distribution of the sum of two uniforms, piece by piece.
    low, high = mixed < small, mixed > large
    middle = (2.0 * mixed - small) / (2.0 * large)
    rest = 1.0 - mixed
    return np.where(low, mixed * mixed * scale, np.where(high, 1.0 - rest * rest * scale, middle))


def even(drawn: Floats) -> Floats:
    """The same order of numbers, moved so that each of the n equal parts of [0, 1) holds one.

    A Latin hypercube of one dimension: every number stays uniform, and the quantiles of few numbers
    scatter less. For what has a heavy tail.
    """
    order = np.argsort(drawn, kind="stable")
    spread = np.empty_like(drawn)
    # Digits of u beyond the sixth are as uniform as u and decides the place within the part.
    spread[order] = (np.arange(drawn.size) + np.modf(drawn[order] * 1e6)[0]) / max(1, drawn.size)
    return spread
