"""Observers of engine steps: time by part, inter-token times, per-rank work, pools over time.

Attached to the replicas from outside. All sums are integers, so they do not depend on whether steps
were taken one by one or in blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from v4sim.cost.base import PARTS
from v4sim.engine.bursts import Bursts
from v4sim.engine.probe import Probe
from v4sim.metrics.histogram import LogHistogram
from v4sim.results import STEP_KINDS, RankTotals, StepTotals

if TYPE_CHECKING:
    from v4sim.engine.call import Call
    from v4sim.engine.rank import Rank
    from v4sim.engine.replica import Replica

Int64s = NDArray[np.int64]


class RankRecorder(Probe):
    """Busy time and work per rank, and how long each replica stepped."""

    def __init__(self, num_replicas: int, ranks_per_replica: int) -> None:
        self.ranks = [
            [RankTotals(replica, rank) for rank in range(ranks_per_replica)]
            for replica in range(num_replicas)
        ]
        self.stepped_ns = 0

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
        self.stepped_ns += duration_ns
        for index, totals in enumerate(self.ranks[replica.number]):
            if rows[index] or new_tokens[index]:
                totals.busy_ns += duration_ns
                totals.decode_rows += rows[index]
                totals.prefill_tokens += new_tokens[index]
            else:
                totals.idle_ns += duration_ns

    def on_decode_block(
        self,
        replica: Replica,
        start_ns: int,
        ends_ns: Int64s,
        durations_ns: Int64s,
        parts_ns: Int64s,
        rows: list[int],
    ) -> None:
        steps = durations_ns.size
        elapsed = int(ends_ns[-1]) - start_ns
        self.stepped_ns += elapsed
        for index, totals in enumerate(self.ranks[replica.number]):
            rank_rows = rows[index]
            if rank_rows:
                totals.busy_ns += elapsed
                totals.decode_rows += rank_rows * steps
            else:
                totals.idle_ns += elapsed

    def on_done(self, rank: Rank, call: Call, now_ns: int) -> None:
        if call.outcome == "completed":
            self.ranks[rank.replica][rank.index].decode_tokens += call.output_tokens


class StepRecorder(Probe):
    """Totals of all steps and of all tokens; the plain form of what `EpochRecorder` keeps by time."""

    def __init__(self) -> None:
        self.parts = {kind: np.zeros(len(PARTS), dtype=np.int64) for kind in STEP_KINDS}
        self.counts = dict.fromkeys(STEP_KINDS, 0)
        self.durations = {kind: LogHistogram() for kind in STEP_KINDS}
        self.itl_burst = LogHistogram()
        self.itl_divided = LogHistogram()
        self._blocks: list[Int64s] = []
        self._singles: dict[str, list[list[int]]] = {kind: [] for kind in STEP_KINDS}

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
        self.counts[kind] += 1
        singles = self._singles[kind]
        singles.append(parts_ns)
        if len(singles) >= 4096:
            self._flush(kind)

    def _flush(self, kind: str) -> None:
        singles = self._singles[kind]
        if singles:
            parts = np.array(singles, dtype=np.int64)
            singles.clear()
            self.parts[kind] += parts.sum(axis=0)
            self.durations[kind].add(parts.sum(axis=1))

    def on_decode_block(
        self,
        replica: Replica,
        start_ns: int,
        ends_ns: Int64s,
        durations_ns: Int64s,
        parts_ns: Int64s,
        rows: list[int],
    ) -> None:
        self.counts["decode"] += durations_ns.size
        self.durations["decode"].add(durations_ns)
        self._blocks.append(parts_ns)
        if len(self._blocks) >= 512:
            self._flush_blocks()

    def _flush_blocks(self) -> None:
        if self._blocks:
            self.parts["decode"] += np.concatenate(self._blocks, axis=1).sum(axis=1)
            self._blocks.clear()

    def on_tokens(self, ends_ns: Sequence[int] | Int64s, bursts: Bursts) -> None:
        gaps, later = bursts.gaps_ns, bursts.durations_ns
        self.itl_burst.add(gaps)
        self.itl_burst.add(later, gaps.size)
        if bursts.tokens is None or bursts.of_size is None:
            self.itl_divided.add(gaps)
            self.itl_divided.add(later, gaps.size)
            return
        self.itl_divided.add(gaps // bursts.tokens, bursts.tokens)
        for size, counted in enumerate(bursts.of_size, 1):
            self.itl_divided.add(later // size, counted * size)

    @property
    def steps(self) -> StepTotals:
        self._flush_blocks()
        for kind in STEP_KINDS:
            self._flush(kind)
        return StepTotals(self.parts, self.counts, self.durations)


class SeriesRecorder(Probe):
    """Pools and queues per rank, sampled when calls are admitted or end.

    Those moments are the same however steps are grouped. Only the replica in which it happens is looked
    at: another one may be in the middle of a block, and keeps its last values. Beyond `limit` samples
    every second one is dropped and the stride doubled, so memory stays bounded on long runs.
    """

    NAMES = ("kv_used", "kv_resident", "swa_used", "running", "queued")

    def __init__(self, replicas: list[Replica], limit: int = 4096) -> None:
        self._ranks = [replica.ranks for replica in replicas]
        self._latest = [[0] * len(self.NAMES) * len(replica.ranks) for replica in replicas]
        self._limit = limit
        self._stride = 1
        self._seen = 0
        self._times: list[int] = []
        self._values: list[list[int]] = []  # per sample: of each rank, one after the other

    def on_admit(self, rank: Rank, call: Call, now_ns: int) -> None:
        self._sample(rank.replica, now_ns)

    def on_release(self, rank: Rank, call: Call, now_ns: int) -> None:
        self._sample(rank.replica, now_ns)

    def _sample(self, replica: int, now_ns: int) -> None:
        self._seen += 1
        skipped = self._seen % self._stride != 0
        if skipped and len(self._ranks) == 1:
            return  # nobody will ask what it was between two samples
        latest: list[int] = []
        for rank in self._ranks[replica]:
            owner = rank.owner
            latest += [owner.kv.used, owner.kv_resident, owner.swa.used, rank.num_running, len(rank.waiting)]
        self._latest[replica] = latest
        if skipped:
            return
        self._times.append(now_ns)
        self._values.append([value for values in self._latest for value in values])
        if len(self._times) >= self._limit:
            self._times = self._times[1::2]
            self._values = self._values[1::2]
            self._stride *= 2

    def series(self) -> dict[str, Int64s]:
        """`t_ns` [samples] and each name [samples, ranks]."""
        shape = len(self._times), sum(len(ranks) for ranks in self._ranks), len(self.NAMES)
        values = np.fromiter(chain.from_iterable(self._values), np.int64).reshape(shape)
        return {"t_ns": np.array(self._times, dtype=np.int64)} | {
            name: values[:, :, i] for i, name in enumerate(self.NAMES)
        }


class BlockRecorder(Probe):
    """The first `limit` stretches of engine time, for the timeline; the number dropped is kept."""

    def __init__(self, limit: int = 20_000) -> None:
        self.blocks: list[tuple[int, int, int, str, int, int]] = []
        self.dropped = 0
        self._limit = limit

    def _add(self, block: tuple[int, int, int, str, int, int]) -> None:
        if len(self.blocks) < self._limit:
            self.blocks.append(block)
        else:
            self.dropped += 1

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
        self._add((replica.number, start_ns, end_ns, kind, sum(rows), sum(new_tokens)))

    def on_decode_block(
        self,
        replica: Replica,
        start_ns: int,
        ends_ns: Int64s,
        durations_ns: Int64s,
        parts_ns: Int64s,
        rows: list[int],
    ) -> None:
        if len(self.blocks) >= self._limit:
            self.dropped += 1
        else:
            self.blocks.append((replica.number, start_ns, int(ends_ns[-1]), "decode", sum(rows), 0))
