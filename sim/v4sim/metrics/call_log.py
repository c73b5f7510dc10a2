"""The observer that turns calls into columns as they end.

A call's record is written once, when it is over (or when the run is), at its place in order of injection,
and the object can go; what stays is 8 bytes or less per number.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from v4sim.engine.probe import Probe
from v4sim.eventclass import EVENT_CLASSES
from v4sim.metrics.calls import Coded

if TYPE_CHECKING:
    from v4sim.engine.call import Call
    from v4sim.engine.rank import Rank
    from v4sim.engine.replica import Replica

OUTCOMES = ("completed", "rejected", "aborted", "running", "queued")
_OUTCOME_CODE = {name: code for code, name in enumerate(OUTCOMES)}
_WAIT_COLUMNS = {"kv": 0, "swa": 1, "slots": 2, "budget": 3}

COLUMNS: tuple[tuple[str, type], ...] = (
    ("row", np.int64),
    ("session", np.int32),
    ("instance", np.int32),
    ("turn", np.int32),
    ("replica", np.int16),
    ("rank", np.int16),
    ("trigger", np.int8),
    ("event_class", np.int8),
    ("done", np.int8),
    ("prompt_tokens", np.int32),
    ("output_tokens", np.int32),
    ("hit_tokens", np.int32),
    ("hit_host_tokens", np.int32),
    ("hit_storage_tokens", np.int32),
    ("computed_tokens", np.int32),
    ("recomputed_tokens", np.int32),
    ("bound_tokens", np.int32),
    ("lost_swa_tokens", np.int32),
    ("ready_ns", np.int64),
    ("sent_ns", np.int64),
    ("queued_ns", np.int64),
    ("admit_ns", np.int64),
    ("first_token_ns", np.int64),
    ("last_token_ns", np.int64),
    ("retractions", np.int32),
    ("verify_steps", np.int32),
    ("drafts_offered", np.int32),
    ("drafts_accepted", np.int32),
    ("wait_queue_ns", np.int64),
    ("wait_kv_ns", np.int64),
    ("wait_swa_ns", np.int64),
    ("wait_slots_ns", np.int64),
    ("wait_budget_ns", np.int64),
    ("gpu_share_ns", np.int64),
    ("kv_peak_tokens", np.int32),
)
_WIDTH: Final = 1 + len(COLUMNS)
_FLUSH: Final = 1024


class CallLog(Probe):
    """Columns of all calls.

    `turns` is the trace's turn column, `drafts` the tokens drafted per step, `most` how many calls there may
    be: room that is not used is never touched, so it takes no memory.
    """

    def __init__(self, turns: NDArray[np.int32], drafts: int, most: int) -> None:
        self._turns = turns.data
        self._drafts = drafts
        self._rows = array("q")  # not yet in the columns: one after the other, each begins with its place
        self._columns: list[NDArray[Any]] = [np.empty(most, dtype=dtype) for _, dtype in COLUMNS]
        self._logged = 0

    def on_done(self, rank: Rank, call: Call, now_ns: int) -> None:
        if call.outcome != "completed":
            self._write(call)

    def on_release(self, rank: Rank, call: Call, now_ns: int) -> None:
        self._write(call)

    def on_end(self, replicas: list[Replica], now_ns: int) -> None:
        for replica in replicas:
            for rank in replica.ranks:
                for call in rank.calls():
                    self._write(call)

    def _write(self, call: Call) -> None:
        waits = [0, 0, 0, 0]
        for reason, waited in call.waits:
            waits[_WAIT_COLUMNS[reason]] += waited
        queue = call.admit_ns - call.queued_ns - sum(waits) if call.admit_ns >= 0 else 0
        # After a retraction a call may wait again: that is in the reasons, not in the first queueing.
        emitted = call.output_tokens - 1 if call.outcome == "completed" else 0
        accepted = max(0, emitted - call.verify_steps - call.retractions) if call.verify_steps else 0
        hit = call.admit_ns >= 0
        self._rows.fromlist(
            [
                call.index,
                call.row,
                call.session,
                call.copy,
                self._turns[call.row],
                call.replica,
                call.rank,
                call.trigger,
                call.event_class,
                _OUTCOME_CODE[call.outcome],
                call.prompt_tokens,
                call.output_tokens,
                call.hit_tokens,
                call.hit_host_tokens,
                call.hit_storage_tokens,
                call.computed_tokens if hit else 0,
                call.recomputed_tokens,
                call.bound_tokens,
                call.lost_swa_tokens,
                call.ready_ns,
                call.sent_ns,
                call.queued_ns,
                call.admit_ns,
                call.first_token_ns,
                call.last_token_ns,
                call.retractions,
                call.verify_steps,
                call.verify_steps * self._drafts,
                accepted if self._drafts else 0,
                max(0, queue),
                *waits,
                call.share_ns,
                call.kv_peak_tokens,
            ]
        )
        if len(self._rows) >= _FLUSH * _WIDTH:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        wide = np.array(self._rows, dtype=np.int64).reshape(-1, _WIDTH).T
        del self._rows[:]
        places = wide[0]
        for column, numbers in zip(self._columns, wide[1:], strict=True):
            column[places] = numbers
        self._logged += places.size

    def columns(self) -> dict[str, Any]:
        """Name → column, in order of injection; `event_class` and `done` as coded texts."""
        self._flush()
        found: dict[str, Any] = {
            name: column[: self._logged] for column, (name, _) in zip(self._columns, COLUMNS, strict=True)
        }
        found["event_class"] = Coded.by_appearance(found["event_class"], EVENT_CLASSES)
        found["done"] = Coded.by_appearance(found["done"], OUTCOMES)
        return found
