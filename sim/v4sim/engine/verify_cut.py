"""Verify windows for which vLLM's token budget has no room.

vLLM hands tokens out in order of admission. Where `max_batched_tokens` is below `max_num_seqs` x (1 +
drafts), the call at the border gets a shorter window, and those behind it none until somebody before them
ends. Such a call pauses: it goes on like a prompt, by its newest token, with the drafts that still fit.

Left out: drafts that a shortened window accepts (vLLM takes as many as it verified; here it yields one
token), and the shortening of a call that has ended unknown to the engine. Each is one call a rank at a
time, and less than a window a step.

Source: vLLM 0.33.0, `v1/core/sched/scheduler.py`; its answers: `tests/oracle/recorded/vllm_narrow.json.gz`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter

from v4sim.engine.call import FINISHED, Call
from v4sim.engine.late import spent
from v4sim.engine.rank import Rank


@dataclass(slots=True)
class Windows:
    """Who has no whole window on a rank."""

    width: int
    # Paused calls, with the drafts of theirs that the step in flight may still accept.
    paused: dict[int, int] = field(default_factory=dict)
    shortened: dict[int, int] = field(default_factory=dict)  # drafts of the last window that was shorter

    def fit(self, rank: Rank, budget: int, most: int, lookahead_tokens: int) -> int:
        """Pause whose window does not fit; what the windows of the others leave of the budget.

        `most`: tokens of one chunk. A prompt that was admitted earlier takes its chunk first.
        """
        for index in self.paused:
            self.paused[index] = 0  # it was in no step since
        width = self.width
        ended = spent(rank) if rank.leaving else []
        decodes = width * (len(rank.decoding) + len(ended))
        if decodes + sum([min(call.prefill_left, most) for call in rank.prefilling]) <= budget:
            return budget - decodes
        left, free, beyond = budget, budget, False
        for call in sorted([*rank.prefilling, *rank.decoding, *ended], key=attrgetter("admission")):
            if call.state == FINISHED:
                free -= min(width, left)
                left -= min(width, left)
            elif call.join_order == 0:
                left -= min(call.prefill_left, most, left)
            elif beyond or left < width:
                beyond = True
                left = 0  # what is less than a window goes to the first that pauses
                in_flight = self.shortened.pop(call.index, 0)
                self.paused[call.index] = width - 1 if rank.clock > call.clock0 else in_flight
                rank.pause(call, lookahead_tokens)
            else:
                left -= width
                free -= width
        if beyond:
            rank.trim_decode_alloc(lookahead_tokens)
        return max(0, free)

    def drafts(self, call: Call, room: int) -> int:
        """Drafts of the window that a call with one token left has room for."""
        return min(self.width - 1, room) if call.index in self.paused else 0

    def goes_on(self, call: Call, drafts: int) -> bool:
        """The step computes `call`; whether it is a window and no chunk."""
        if self.paused.pop(call.index, None) is None:
            return False
        self.shortened[call.index] = drafts
        return True
