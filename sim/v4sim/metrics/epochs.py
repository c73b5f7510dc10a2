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

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from v4sim.cost.base import PARTS
from v4sim.engine.probe import Probe
from v4sim.metrics.histogram import LogHistogram
from v4sim.results import STEP_KINDS, StepTotals

if TYPE_CHECKING:
    from v4sim.engine.replica import Replica
    from v4sim.metrics.window import Window

_WIDTH_BITS = 30  # the first epochs are 2^30 ns long
_MANTISSA_BITS = 4
_FOLD = 1 << 16  # values that an epoch collects before it adds them up
_DECODE, _MIXED = STEP_KINDS.index("decode"), STEP_KINDS.index("mixed")
_KIND = {name: code for code, name in enumerate(STEP_KINDS)}

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


def _numbers(ends_ns: Int64s) -> Int64s:
    return np.array([epoch_number(end) for end in ends_ns.tolist()], dtype=np.int64)


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


class Sums(LogHistogram):
    """A histogram that can be stored by its used bins and added up again."""

    def used(self) -> _Used:
        self.flush()
        bins = np.flatnonzero(self.counts)
        return bins.astype(np.int16), self.counts[bins], self._total_ns, self._min, self._max

    def absorb(self, used: _Used) -> None:
        bins, counts, total, least, most = used
        if least < 0:  # it holds nothing
            return
        self.counts[bins] += counts
        self._total_ns += total
        self._min = least if self._min < 0 else min(self._min, least)
        self._max = max(self._max, most)


_Used = tuple[NDArray[np.int16], Int64s, int, int, int]
# Where every burst is one token, the two forms of inter-token time are one: `both`.
HISTOGRAMS = (*STEP_KINDS, "burst", "divided", "both")


class _Epoch:
    """The totals of one epoch. Collects what comes, and adds it up in bulk."""

    def __init__(self, replicas: int, ranks: int) -> None:
        self.parts = np.zeros((len(STEP_KINDS), len(PARTS)), dtype=np.int64)
        self.counts = np.zeros(len(STEP_KINDS), dtype=np.int64)
        self.busy = np.zeros((replicas, ranks), dtype=np.int64)
        self.mixed = [0, 0]
        self.histograms: dict[str, list[_Used]] = {name: [] for name in HISTOGRAMS}
        # Not added up yet: single steps (replica, kind, parts, work), blocks (replica, parts, rows), tokens.
        self.singles: list[tuple[int, int, list[int], list[tuple[int, int]]]] = []
        self.blocks: list[tuple[int, Int64s, list[int]]] = []
        self.gaps: list[Int64s] = []
        self.tokens: list[Int64s] = []
        self.size = 0

    def fold(self) -> None:
        """Add up what was collected."""
        if self.singles:
            self._fold_singles()
        if self.blocks:
            self._fold_blocks()
        if self.gaps:
            self._fold_tokens()
        self.size = 0

    def _store(self, name: str, values: Int64s, weights: Int64s | int = 1) -> None:
        if values.size:
            histogram = Sums()
            histogram.add(values, weights)
            self.histograms[name].append(histogram.used())

    def _add_busy(self, replica_of: Int64s, busy: Int64s) -> None:
        for replica in range(len(self.busy)):
            self.busy[replica] += busy[replica_of == replica].sum(axis=0)

    def _fold_singles(self) -> None:
        replicas, kinds, parts, work = zip(*self.singles, strict=True)
        self.singles.clear()
        kind_of = np.array(kinds, dtype=np.int64)
        parts_ns = np.array(parts, dtype=np.int64)
        # Flat first: numpy takes long over nested tuples.
        flat = [number for step in work for pair in step for number in pair]
        rows_tokens = np.array(flat, dtype=np.int64).reshape(len(parts), -1, 2)
        durations = parts_ns.sum(axis=1)
        self._add_busy(np.array(replicas, dtype=np.int64), durations[:, None] * rows_tokens.any(axis=2))
        for kind, name in enumerate(STEP_KINDS):
            mine = kind_of == kind
            self.parts[kind] += parts_ns[mine].sum(axis=0)
            self.counts[kind] += int(mine.sum())
            self._store(name, durations[mine])
        rows, tokens = rows_tokens[kind_of == _MIXED].sum(axis=(0, 1)).tolist()
        self.mixed[0] += tokens
        self.mixed[1] += rows

    def _fold_blocks(self) -> None:
        replicas, parts, rows = zip(*self.blocks, strict=True)
        self.blocks.clear()
        sizes = np.array([block.shape[1] for block in parts])
        parts_ns = np.concatenate(parts, axis=1)
        durations = parts_ns.sum(axis=0)
        first = np.cumsum(sizes) - sizes
        lasted = np.add.reduceat(durations, first)
        self.parts[_DECODE] += parts_ns.sum(axis=1)
        self.counts[_DECODE] += durations.size
        self._add_busy(np.array(replicas, dtype=np.int64), lasted[:, None] * (np.array(rows) > 0))
        self._store("decode", durations)

    def _fold_tokens(self) -> None:
        gaps, tokens = np.concatenate(self.gaps), np.concatenate(self.tokens)
        self.gaps.clear()
        self.tokens.clear()
        if int(tokens.max(initial=1)) == 1:
            self._store("both", gaps)
        else:
            self._store("burst", gaps)
            self._store("divided", gaps // tokens, tokens)


class EpochRecorder(Probe):
    """Attach to a run (`probes=`), then ask `over(window)`."""

    def __init__(self, replicas: int, ranks_per_replica: int) -> None:
        self._shape = (replicas, ranks_per_replica)
        self._epochs: dict[int, _Epoch] = {}
        self._tokens: tuple[int, Int64s, Int64s] | None = None  # not booked yet: moment, gaps, tokens
        self._replica: Replica | None = None
        self._told = (-1, -1, -1)  # the last single step: replica, moment of telling, end
        self._run_end_ns = 0

    # -- what the engine says -----------------------------------------------------------------------

    def on_step(
        self,
        replica: Replica,
        start_ns: int,
        duration_ns: int,
        parts_ns: list[int],
        kind: str,
        work: list[tuple[int, int]],
    ) -> None:
        self._book_tokens(None)
        self._replica = replica
        end_ns = start_ns + duration_ns
        self._told = (replica.number, int(replica.env.now), end_ns)
        epoch = self._epoch(epoch_number(end_ns))
        epoch.singles.append((replica.number, _KIND[kind], parts_ns, work))
        epoch.size += 1

    def on_decode_block(
        self, replica: Replica, start_ns: int, ends_ns: Int64s, parts_ns: Int64s, rows: list[int]
    ) -> None:
        # A step that was told at this same moment and ends where the block starts begins the same tokens.
        leads = self._told == (replica.number, int(ends_ns[-1]), start_ns)
        self._book_tokens(np.append(start_ns, ends_ns) if leads else ends_ns)
        self._replica = replica
        last = epoch_number(int(ends_ns[-1]))
        if epoch_number(int(ends_ns[0])) == last:
            self._add_block(last, replica.number, parts_ns, rows)
            return
        of_step = _numbers(ends_ns)
        for number in np.unique(of_step).tolist():
            self._add_block(number, replica.number, parts_ns[:, of_step == number], rows)

    def _add_block(self, number: int, replica: int, parts_ns: Int64s, rows: list[int]) -> None:
        epoch = self._epoch(number)
        epoch.blocks.append((replica, parts_ns, rows))
        epoch.size += parts_ns.shape[1]

    def on_tokens(self, gaps_ns: Int64s, tokens: Int64s) -> None:
        self._book_tokens(None)
        assert self._replica is not None, "tokens come from steps"
        self._tokens = (int(self._replica.env.now), gaps_ns, tokens)

    def on_end(self, replicas: list[Replica], now_ns: int) -> None:
        self._book_tokens(None)
        self._run_end_ns = now_ns

    def _book_tokens(self, ends_ns: Int64s | None) -> None:
        """Book the tokens last seen: of a run of steps if `ends_ns` is given, otherwise of one step.

        Of a run of decode steps the engine tells first the leading step if it was priced alone, then all
        tokens, then the block of the other steps.
        """
        if self._tokens is None:
            return
        (at_ns, gaps_ns, tokens), self._tokens = self._tokens, None
        last = epoch_number(at_ns)
        if ends_ns is None or epoch_number(int(ends_ns[0])) == last:
            self._add_gaps(last, gaps_ns, tokens)
            return
        of_step = _numbers(ends_ns)
        gaps_by_step, tokens_by_step = (x.reshape(-1, ends_ns.size) for x in (gaps_ns, tokens))
        for number in np.unique(of_step).tolist():
            mine = of_step == number
            self._add_gaps(number, gaps_by_step[:, mine].ravel(), tokens_by_step[:, mine].ravel())

    def _add_gaps(self, number: int, gaps_ns: Int64s, tokens: Int64s) -> None:
        epoch = self._epoch(number)
        epoch.gaps.append(gaps_ns)
        epoch.tokens.append(tokens)
        epoch.size += gaps_ns.size

    def _epoch(self, number: int) -> _Epoch:
        epoch = self._epochs.get(number)
        if epoch is None:
            # Time moves on: what the earlier epochs collected can be added up.
            for earlier in self._epochs.values():
                if earlier.size:
                    earlier.fold()
            epoch = self._epochs[number] = _Epoch(*self._shape)
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
        histograms = {name: Sums() for name in HISTOGRAMS}
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
