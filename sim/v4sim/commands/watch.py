"""An observer of the engine that moves a progress bar: calls that ended, of all that will be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from v4sim.commands.talk import Advance
from v4sim.engine.probe import Probe

if TYPE_CHECKING:
    from v4sim.engine.call import Call
    from v4sim.engine.rank import Rank


class EndedCalls(Probe):
    def __init__(self, advance: Advance, total: int) -> None:
        self._advance = advance
        self._total = total
        self._ended = 0

    def on_done(self, rank: Rank, call: Call, now_ns: int) -> None:
        self._ended += 1
        self._advance(self._ended, self._total)
