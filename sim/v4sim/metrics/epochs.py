"""What the engine did, by time: steps, parts, inter-token times and busy ranks per epoch of the run.

Totals over a whole run mix warm-up and drain into the figures, and which part is steady is known only
when the run is over. So an observer keeps the same totals for epochs of simulated time: about a second
long at first, then each at most 1/16 of the time at its start, so that a run of days whose load lies in
its first hour is still resolved. A step belongs to the epoch in which it ends, step by step, so blocks of
steps and single steps give the same integers. A window covers the epochs whose middles lie in it.

Memory: some 200 epochs for a day of simulated time, a few kB each; histograms keep only the bins they use.
Units: integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from v4sim.cost.base import PARTS
from v4sim.engine.bursts import Bursts
from v4sim.engine.probe import Probe
from v4sim.metrics.epoch import HISTOGRAMS, Epoch
from v4sim.metrics.histogram import LogHistogram
from v4sim.results import STEP_KINDS, StepTotals

if TYPE_CHECKING:
    from v4sim.engine.replica import Replica
    from v4sim.metrics.window import Window

_WIDTH_BITS: Final = 30  # the first epochs are 2^30 ns long
_MANTISSA_BITS: Final = 4
_FOLD: Final = 1 << 16  # values that an epoch collects before it adds them up
_KIND: Final = {name: code for code, name in enumerate(STEP_KINDS)}

Int64s = NDArray[np.int64]


def epoch_number(at_ns: int) -> int:
    """The epoch of a moment: linear up to 2^35 ns, then 16 epochs per doubling of time."""
    units = at_ns >> _WIDTH_BITS
    shift = max(0, units.bit_length() - _MANTISSA_BITS - 1)
    return (shift << _MANTISSA_BITS) + (units >> shift)


def epoch_start(number: int) -> int:
    """The first nanosecond of an epoch: the inverse of `epoch_number`."""
    shift = max(0, (number >> _MANTISSA_BITS) - 1)
    return (number - (shift << _MANTISSA_BITS)) << (shift + _WIDTH_BITS)


def _numbers(ends_ns: Sequence[int] | Int64s) -> Int64s:
    return np.array([epoch_number(int(end)) for end in ends_ns], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class EngineTotals:
    """Totals of a stretch of engine time, [start, end) of simulated time."""

    start_ns: int
    end_ns: int
    steps: StepTotals
    itl_burst: LogHistogram
    itl_divided: LogHistogram
    busy_ns: Int64s  # [replica, rank]: steps in which the rank had work of its own
    mixed_tokens: tuple[int, int]  # prefill tokens and decode rows in mixed steps

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


class EpochRecorder(Probe):
    """Attach to a run (`probes=`), then ask `over(window)`."""

    def __init__(self, replicas: int, ranks_per_replica: int) -> None:
        self._shape = (replicas, ranks_per_replica)
        self._epochs: dict[int, Epoch] = {}
        self._run_end_ns = 0

    # -- what the engine says -----------------------------------------------------------------------

    def on_step(
        self,
        replica: Replica,
        start_ns: int,
        duration_ns: int,
        parts_ns: list[int],
        kind: str,
        rows: list[int],
        new_tokens: list[int],
    ) -> None:
        end_ns = start_ns + duration_ns
        epoch = self._epoch(epoch_number(end_ns))
        numbers = [replica.number, _KIND[kind], *parts_ns, *rows, *new_tokens]
        epoch.singles.fromlist(numbers)
        epoch.size += len(numbers)

    def on_decode_block(
        self,
        replica: Replica,
        start_ns: int,
        ends_ns: Int64s,
        durations_ns: Int64s,
        parts_ns: Int64s,
        rows: list[int],
    ) -> None:
        first, last = epoch_number(int(ends_ns[0])), epoch_number(int(ends_ns[-1]))
        if first == last:
            self._add_block(last, replica.number, parts_ns, rows)
            return
        of_step = _numbers(ends_ns)
        for number in sorted(set(of_step.tolist())):
            self._add_block(number, replica.number, parts_ns[:, of_step == number], rows)

    def _add_block(self, number: int, replica: int, parts_ns: Int64s, rows: list[int]) -> None:
        epoch = self._epoch(number)
        epoch.blocks.append((replica, parts_ns, rows))
        epoch.size += parts_ns.shape[1]

    def on_tokens(self, ends_ns: Sequence[int] | Int64s, bursts: Bursts) -> None:
        first, last = epoch_number(int(ends_ns[0])), epoch_number(int(ends_ns[-1]))
        self._add_gaps(first, bursts.gaps_ns, bursts.tokens)
        durations = bursts.durations_ns
        if not durations.size:
            return
        rows = bursts.gaps_ns.size
        if first == last:
            self._add_steps(last, durations, rows, bursts.of_size)
            return
        of_step = _numbers(ends_ns)[1:]
        for number in sorted(set(of_step.tolist())):
            mine = of_step == number
            of_size = None if bursts.of_size is None else [counted[mine] for counted in bursts.of_size]
            self._add_steps(number, durations[mine], rows, of_size)

    def on_end(self, replicas: list[Replica], now_ns: int) -> None:
        self._run_end_ns = now_ns

    def _add_gaps(self, number: int, gaps_ns: Int64s, tokens: Int64s | None) -> None:
        """First bursts, one per sequence, of `tokens` [sequence]; None: one token each."""
        epoch = self._epoch(number)
        epoch.size += gaps_ns.size
        if tokens is None:
            epoch.both.append((gaps_ns, 1))
        else:
            epoch.burst.append((gaps_ns, 1))
            epoch.firsts.append((gaps_ns, tokens))

    def _add_steps(self, number: int, durations_ns: Int64s, rows: int, of_size: list[Int64s] | None) -> None:
        """Later bursts: `rows` sequences have one in each step, `of_size[n - 1]` [step] of them of n tokens.

        None: one token each.
        """
        epoch = self._epoch(number)
        if of_size is None:
            epoch.size += durations_ns.size
            epoch.both.append((durations_ns, rows))
            return
        epoch.size += durations_ns.size * len(of_size)
        epoch.burst.append((durations_ns, rows))
        for size, counted in enumerate(of_size, 1):
            epoch.later(size).append((durations_ns, counted))

    def _epoch(self, number: int) -> Epoch:
        epoch = self._epochs.get(number)
        if epoch is None:
            # Time moves on: what the earlier epochs collected can be added up.
            for earlier in self._epochs.values():
                if earlier.size:
                    earlier.fold()
            epoch = self._epochs[number] = Epoch(*self._shape)
        elif epoch.size >= _FOLD:
            epoch.fold()
        return epoch

    # -- what is asked ------------------------------------------------------------------------------

    def over(self, window: Window) -> EngineTotals:
        """The totals of the epochs whose middles lie in the window; of the nearest one if none does."""
        first, last = epoch_number(max(window.start_ns, 0)), epoch_number(max(window.end_ns - 1, 0))
        middle = [(epoch_start(n) + epoch_start(n + 1)) // 2 for n in (first, last)]
        if middle[0] < window.start_ns:
            first += 1
        if middle[1] >= window.end_ns:
            last -= 1
        if first > last:
            first = last = epoch_number((window.start_ns + window.end_ns) // 2)
        return self._sum(first, last)

    def everything(self) -> EngineTotals:
        """The totals of the whole run."""
        return self._sum(0, max(self._epochs, default=0))

    def _sum(self, first: int, last: int) -> EngineTotals:
        parts = np.zeros((len(STEP_KINDS), len(PARTS)), dtype=np.int64)
        counts = np.zeros(len(STEP_KINDS), dtype=np.int64)
        busy = np.zeros(self._shape, dtype=np.int64)
        mixed = [0, 0]
        histograms = {name: LogHistogram() for name in HISTOGRAMS}
        for number, epoch in sorted(self._epochs.items()):
            if not first <= number <= last:
                continue
            epoch.fold()
            parts += epoch.parts
            counts += epoch.counts
            busy += epoch.busy
            mixed = [mixed[0] + epoch.mixed[0], mixed[1] + epoch.mixed[1]]
            for name, pieces in epoch.histograms.items():
                for target in ("burst", "divided") if name == "both" else (name,):
                    for piece in pieces:
                        histograms[target].absorb(piece)
        return EngineTotals(
            start_ns=epoch_start(first),
            end_ns=min(epoch_start(last + 1), self._run_end_ns),
            steps=StepTotals(
                dict(zip(STEP_KINDS, parts, strict=True)),
                dict(zip(STEP_KINDS, counts.tolist(), strict=True)),
                {kind: histograms[kind] for kind in STEP_KINDS},
            ),
            itl_burst=histograms["burst"],
            itl_divided=histograms["divided"],
            busy_ns=busy,
            mixed_tokens=(mixed[0], mixed[1]),
        )
