"""One honest number: warm until it is steady, repeat until the confidence interval is small enough.

A fixed warm-up is wrong for somebody: clocks and caches may take longer than any constant. So blocks of
launches run until the medians of two consecutive ones agree. The interval is that of a median
by order statistics (95 %, no distribution assumed). If the time limit comes first, the row says so by
its interval; it is not silently accepted.

Leaves out how a launch is timed (see `devices`). Units: microseconds, seconds where a name says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from v4calib.device import Case, Clock, Variant

MAX_SAMPLES = 400
MAX_WARM_BLOCKS = 40
STEADY = 0.02  # consecutive medians that differ by less are steady
_Z95 = 1.959964
UNROLL = 20  # launches between two looks at a clock, so that its own cost is a small part of a mean ...
_LONG_US = 2000.0  # ... unless they take longer than this together


@dataclass(frozen=True, slots=True)
class Budget:
    """When to stop: a relative half-width of the interval, or seconds of device time, whichever is first."""

    ci_goal: float
    seconds: float
    block: int = 5
    min_samples: int = 10


@dataclass(frozen=True, slots=True)
class Timing:
    """A median with its 95 % interval."""

    us: float
    low_us: float
    high_us: float
    samples: int
    warm_up: int
    steady: bool

    @property
    def ci(self) -> float:
        """Half-width relative to the median."""
        return (self.high_us - self.low_us) / 2 / self.us if self.us > 0 else math.inf


def measure(clock: Clock, case: Case, variant: Variant, budget: Budget) -> Timing:
    """Time one variant of one case."""
    warm, previous, steady, spent = 0, math.inf, False, 0.0
    for _ in range(MAX_WARM_BLOCKS):
        block = clock.sample_us(case, variant, budget.block)
        warm += len(block)
        spent += sum(block) / 1e6
        current = median(block)
        steady = abs(current - previous) <= STEADY * current
        previous = current
        if steady or spent > budget.seconds:
            break
    samples: list[float] = []
    spent = 0.0
    while len(samples) < MAX_SAMPLES:
        block = clock.sample_us(case, variant, budget.block)
        samples += block
        spent += sum(block) / 1e6
        if len(samples) >= budget.min_samples:
            found = interval(samples)
            if (found[2] - found[1]) / 2 <= budget.ci_goal * found[0] or spent > budget.seconds:
                break
    us, low, high = interval(samples)
    return Timing(us, low, high, len(samples), warm, steady)


def rounds(copies: int, one_us: float) -> int:
    """How often all copies are gone through for one sample: less often where a launch is long."""
    enough = math.ceil(UNROLL / copies)
    return max(1, min(enough, math.ceil(_LONG_US / max(one_us, 1e-3) / copies)))


def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def interval(values: list[float]) -> tuple[float, float, float]:
    """Median and the order statistics that enclose it with 95 %; few samples: the whole range."""
    ordered = sorted(values)
    n = len(ordered)
    reach = _Z95 * math.sqrt(n) / 2
    low = max(math.floor(n / 2 - reach) - 1, 0)
    high = min(math.ceil(n / 2 + reach), n - 1)
    return median(ordered), ordered[low], ordered[high]
