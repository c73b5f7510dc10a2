"""Decode progress of one call: how many tokens each engine step yields.

Without speculation a step yields one token. With k draft tokens a verify step yields the accepted
drafts plus one; whether the draft at output position t is accepted is decided by one random number
that belongs to (seed, call, t), so a wider or narrower verify window, another batch or another
schedule sees the same luck. Each position is judged at most once, as in the real walk.

`walk()` returns the output position at which each step starts. The width of the verify window is
the policy's choice per batch (`SpecPolicy`); when it changes, a running call is walked again from
where it stands.

Left out: per-sequence widths in one batch (DSpark's ragged mode verifies all drafts, as it does
without a cost table), and draft quality that depends on content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from v4sim import streams
from v4sim.acceptance import DEFAULT_PHASE, PHASES, AcceptanceTable

Int64s = NDArray[np.int64]
# What a trace states of one call: (kind of output, conditional rate per draft position), …
Stated = Sequence[tuple[str, Sequence[float]]]
DEFAULT = PHASES.index(DEFAULT_PHASE)
_COUNT_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class SpecPolicy:
    """Number of draft tokens for a batch.

    Fixed at `draft_tokens`, or adaptive: halve the drafts each time the rows of the busiest rank
    double beyond `adaptive_max_rows`, down to none. Verify width = drafts + 1.
    """

    draft_tokens: int
    adaptive_max_rows: int = 0

    def width(self, rows: int) -> int:
        drafts = self.draft_tokens
        if self.adaptive_max_rows:
            limit = self.adaptive_max_rows
            while drafts and rows > limit:
                drafts //= 2
                limit *= 2
        return drafts + 1


class AcceptanceModel:
    """Draws accepted lengths for calls from a table of conditional rates.

    `counts[phase, a]` tallies executed verify steps by the phase they started in and the number
    of accepted drafts.
    """

    def __init__(self, table: AcceptanceTable, draft_tokens: int, seed: int) -> None:
        self.table = table
        self.draft_tokens = draft_tokens
        self._counts = np.zeros((len(PHASES), draft_tokens + 1), dtype=np.int64)
        self._of_default = [0] * (draft_tokens + 1)
        self._cells: list[Int64s] = []  # of `counts`, not counted yet
        self._uncounted = 0
        self.rates = np.array(table.for_drafts(draft_tokens), dtype=np.float64).reshape(
            len(PHASES), draft_tokens
        )
        self._seed = seed

    def phase_codes(self, kinds: NDArray[np.int8], tokens: Int64s, output_tokens: int) -> Int64s:
        """Phase code of every output position, from spans; beyond the spans the last (or default) goes on."""
        codes = np.repeat(kinds, tokens).astype(np.int64)[:output_tokens]
        if codes.size < output_tokens:
            rest = codes[-1] if codes.size else DEFAULT
            codes = np.concatenate([codes, np.full(output_tokens - codes.size, rest)])
        return codes

    def rates_of(self, stated: Stated) -> NDArray[np.float64]:
        """The table's rates [phases, drafts], but for the kinds of output that a trace states itself."""
        rates = self.rates.copy()
        for kind, per_position in stated:
            known = list(per_position)[: self.draft_tokens]
            rates[PHASES.index(kind)] = known + [0.0] * (self.draft_tokens - len(known))
        return rates

    def accepted(
        self, uid: int, output_tokens: int, phases: Int64s | None, *, drafts: int, stated: Stated = ()
    ) -> Int64s:
        """Drafts that a verify step accepts which starts after g emitted tokens, for every g < output."""
        within = np.arange(output_tokens)
        lengths = np.array([output_tokens])
        rates = self.rates_of(stated) if stated else None
        return self.accepted_together([uid], lengths, within, lengths - 1, phases, drafts=drafts, rates=rates)

    def luck(self, uids: Sequence[int], lengths: Int64s, within: Int64s) -> NDArray[np.float64]:
        """The draw of every output position of several contents, one after the other."""
        keys = np.array([streams.mix(self._seed, streams.ACCEPTANCE, uid) for uid in uids], dtype=np.uint64)
        return streams.uniforms_at(np.repeat(keys, lengths), within)

    def accepted_together(
        self,
        uids: Sequence[int],
        lengths: Int64s,
        within: Int64s,
        last: Int64s,
        phases: Int64s | None,
        *,
        drafts: int | None = None,
        rates: NDArray[np.float64] | None = None,
    ) -> Int64s:
        """`accepted` of several contents, one after the other.

        `within` is each element's output position, `last` the index of each content's last element.
        """
        drafts = self.draft_tokens if drafts is None else drafts
        table = self.rates if rates is None else rates
        luck = self.luck(uids, lengths, within)
        run = np.zeros(luck.size, dtype=np.int64)
        for position in range(drafts - 1, -1, -1):
            # run[g] = accepted run of drafts position, position+1, … when draft `position` lies at g.
            at_position = table[:, position]
            rate = at_position[DEFAULT] if phases is None else at_position[phases]
            after = np.empty_like(run)
            after[:-1] = run[1:]
            after[last] = 0
            run = np.where(luck < rate, 1 + after, 0)
        return run

    def record(self, starts: Int64s, ends: Int64s, phases: Int64s) -> None:
        """Tally executed verify steps: output positions at their start and end, phases by position."""
        cells = ends - starts  # one more than what was accepted
        cells += phases[starts] * (self.draft_tokens + 1) - 1
        self._cells.append(cells)
        self._uncounted += cells.size
        if self._uncounted >= _COUNT_AT_ONCE:
            self._count()

    def record_sizes(self, steps: Sequence[int]) -> None:
        """Tally executed verify steps of the default phase by the drafts that they accepted."""
        for accepted, count in enumerate(steps):
            self._of_default[accepted] += count

    def _count(self) -> None:
        if self._cells:
            found = np.bincount(np.concatenate(self._cells), minlength=self._counts.size)
            self._counts += found.reshape(self._counts.shape)
            self._cells.clear()
            self._uncounted = 0

    @property
    def counts(self) -> Int64s:
        self._count()
        counts = self._counts.copy()
        counts[DEFAULT] += self._of_default
        return counts

    def by_phase(self) -> dict[str, tuple[list[int], list[int]]]:
        """Per phase: drafts offered and accepted at each position."""
        result = {}
        for row, phase in zip(self.counts, PHASES, strict=True):
            steps = int(row.sum())
            if steps:
                accepted = [int(row[i:].sum()) for i in range(1, self.draft_tokens + 1)]
                result[phase] = ([steps] * self.draft_tokens, accepted)
        return result


def walk(accepted: Int64s | None, first: int, output_tokens: int, drafts: int = 0) -> Int64s:
    """Emitted tokens at the start of each decode step, from `first` to the end.

    `accepted[g]` ≤ `drafts` is what a step that starts at g would accept; None: one token a step.
    """
    if accepted is None:
        return np.arange(first, output_tokens, dtype=np.int64)
    if drafts == 1:
        return _walk_pairs(accepted, first, output_tokens)
    stride = (accepted + 1).tolist()
    starts = []
    position = first
    while position < output_tokens:
        starts.append(position)
        position += stride[position]
    return np.array(starts, dtype=np.int64)


def _walk_pairs(accepted: Int64s, first: int, output_tokens: int) -> Int64s:
    """The walk of one draft token without a loop.

    A step at g skips g+1 exactly if its draft is accepted. Right after a position that accepts
    nothing a step starts for certain, and from there on every second position starts one until the
    next that accepts nothing. So g starts a step iff its distance to the last such anchor is even.
    """
    if first >= output_tokens:
        return np.zeros(0, dtype=np.int64)
    positions = np.arange(first, output_tokens, dtype=np.int64)
    anchors = np.empty_like(positions)
    anchors[0] = first
    anchors[1:] = np.where(accepted[first : output_tokens - 1] == 0, positions[1:], 0)
    np.maximum.accumulate(anchors, out=anchors)
    anchors -= positions
    anchors &= 1
    starts: Int64s = positions[anchors == 0]
    return starts
