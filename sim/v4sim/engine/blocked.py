"""What kept calls at the head of a queue waiting: the evidence behind "what limits me".

A reason is taken when the head is first refused and stands until the rank's membership changes, so
the ledger does not depend on how often an engine asks in between.
"""

from __future__ import annotations

from v4sim.engine.call import Call


class BlockedLedger:
    """Time by reason for one rank; `totals[reason]` = [calls that waited for it, ns]."""

    def __init__(self) -> None:
        self.totals: dict[str, list[int]] = {}
        self._open: tuple[Call, str, int, int] | None = None  # head, reason, since, epoch

    def note(self, call: Call, reason: str, now_ns: int, epoch: int) -> None:
        """The head `call` was refused for `reason` while membership is at `epoch`."""
        if self._open is not None:
            if self._open[0] is call and self._open[3] == epoch:
                return
            self.close(now_ns)
        entry = self.totals.setdefault(reason, [0, 0])
        if not call.waits or call.waits[-1][0] != reason:
            entry[0] += 1
        self._open = (call, reason, now_ns, epoch)

    @property
    def head(self) -> Call | None:
        """Who was refused last and still waits."""
        return None if self._open is None else self._open[0]

    def close(self, now_ns: int) -> None:
        """The head waits no longer, or for another reason: book the time until now."""
        if self._open is None:
            return
        call, reason, since, _ = self._open
        self._open = None
        waited = now_ns - since
        self.totals[reason][1] += waited
        if call.waits and call.waits[-1][0] == reason:
            waited += call.waits.pop()[1]
        call.waits.append((reason, waited))
