"""Walks of many calls at once.

What a call's decode steps yield depends on its content id, its output and the draft width alone, not
on the schedule. So the walks of a run of neighbouring trace rows are worked out together, when the
first of them is asked for, and handed out one by one; a call that starts over from the middle (after
a retraction), at another width, or with acceptance stated by the trace is walked alone by
`speculation`. Both give the same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from v4sim import form
from v4sim.speculation import DEFAULT, AcceptanceModel, walk

if TYPE_CHECKING:
    from v4traces import TraceTable

Int64s = NDArray[np.int64]
ROWS_AT_ONCE = 64


class Walks:
    """Hands out (walk, phase code of every output position or None) per content id."""

    def __init__(self, model: AcceptanceModel, table: TraceTable, stride: int) -> None:
        self.model = model
        self._stride = stride
        self._output = table.output_tokens
        self._phase_offsets = table.phase_offsets
        self._phase_kind = table.phase_kind
        self._phase_tokens = table.phase_tokens
        self._stated = table.acceptance
        self._ready: dict[int, tuple[Int64s, Int64s | None]] = {}

    def fresh(self, uid: int) -> tuple[Int64s, Int64s | None]:
        """The walk from the first token on, at the full width; can be asked for once per content id."""
        found = self._ready.pop(uid, None)
        if found is None:
            self._prepare(uid)
            found = self._ready.pop(uid)
        return found

    def again(self, uid: int, first: int, drafts: int, phases: Int64s | None) -> Int64s:
        """The walk from `first` emitted tokens on, with `drafts` draft tokens."""
        output = max(1, int(self._output[uid % self._stride]))
        if not drafts:
            return walk(None, first, output)
        stated = self._stated.get(uid % self._stride, ())
        return walk(
            self.model.accepted(uid, output, phases, drafts=drafts, stated=stated), first, output, drafts
        )

    def _prepare(self, uid: int) -> None:
        copy, row = divmod(uid, self._stride)
        begin = row // ROWS_AT_ONCE * ROWS_AT_ONCE
        lengths = np.maximum(self._output[begin : begin + ROWS_AT_ONCE], 1)
        base = copy * self._stride + begin
        uids = range(base, base + lengths.size)
        ends = np.cumsum(lengths)
        offsets = ends - lengths
        total = int(ends[-1])
        within = np.arange(total) - np.repeat(offsets, lengths)
        phases = self._phases(begin, lengths)
        if form.COMPILED:
            walks = self._one_by_one(list(uids), lengths, within, phases)
        else:
            walks = self._together(list(uids), lengths, within, phases)
        for i, (known, steps) in enumerate(zip(uids, walks, strict=True)):
            mine = None if phases is None else phases[offsets[i] : ends[i]]
            if begin + i in self._stated:
                steps = self.again(known, 1, self.model.draft_tokens, mine)
            self._ready[known] = steps, mine

    def _together(
        self, uids: list[int], lengths: Int64s, within: Int64s, phases: Int64s | None
    ) -> list[Int64s]:
        """Each content's walk; `within` is the output position of every element of all of them."""
        ends = np.cumsum(lengths)
        accepted = self.model.accepted_together(uids, lengths, within, ends - 1, phases)
        if self.model.draft_tokens == 1:
            starts = _pair_walks(accepted, within)
            return np.split(within[starts], np.searchsorted(starts, ends)[:-1])
        return [
            walk(accepted[end - length : end], 1, length, self.model.draft_tokens)
            for length, end in zip(lengths.tolist(), ends.tolist(), strict=True)
        ]

    def _one_by_one(
        self, uids: list[int], lengths: Int64s, within: Int64s, phases: Int64s | None
    ) -> list[Int64s]:
        """The same, for compiled code."""
        from v4sim.walk_loops import Luck

        model = self.model
        draws = model.luck(uids, lengths, within).tobytes()
        codes = None if phases is None else phases.tobytes()
        luck = Luck(draws, codes, model.rates.ravel().tolist(), model.draft_tokens, DEFAULT)
        begins = (np.cumsum(lengths) - lengths).tolist()
        return [luck.walk(begin, length) for begin, length in zip(begins, lengths.tolist(), strict=True)]

    def _phases(self, begin: int, lengths: Int64s) -> Int64s | None:
        """Phase codes of the rows' outputs, one after the other; None if no row states phases."""
        offsets = self._phase_offsets[begin : begin + lengths.size + 1]
        if offsets[0] == offsets[-1]:
            return None
        codes = []
        for i, length in enumerate(lengths.tolist()):
            span = slice(int(offsets[i]), int(offsets[i + 1]))
            codes.append(self.model.phase_codes(self._phase_kind[span], self._phase_tokens[span], length))
        return np.concatenate(codes)


def _pair_walks(accepted: Int64s, within: Int64s) -> Int64s:
    """Positions at which steps start with one draft token, of all walks; see `speculation._walk_pairs`.

    The first token comes from prefill, so position 0 of a walk starts nothing and position 1 always does.
    """
    positions = np.arange(accepted.size)
    anchors = np.zeros_like(positions)
    anchors[1:] = np.where((accepted[:-1] == 0) | (within[1:] == 1), positions[1:], 0)
    np.maximum.accumulate(anchors, out=anchors)
    starts: Int64s = np.flatnonzero((((positions - anchors) & 1) == 0) & (within > 0))
    return starts
