"""Agent sessions as SimPy processes: closed-loop turns, tool gaps, joins.

Each call is a process: wait until the calls it depends on are done (the previous turn, or sub-agents
to join), then for its delay (tool and client), then be routed. A family starts when the workload
says so and ends with its last call; a closed loop starts the next family at that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy
from numpy.typing import NDArray

from v4sim import eventclass
from v4sim.clock import NS_PER_S
from v4sim.engine.call import Call
from v4sim.workload import Family, WorkloadOptions, offsets_ns, starts

if TYPE_CHECKING:
    from v4sim.prefix import PrefixIndex
    from v4traces import TraceTable

Submit = Callable[[Call], "Generator[simpy.Event, Any, None]"]


class Sessions:
    """Feeds calls from a trace into the engine. `submit` is the way through router and front end."""

    def __init__(
        self,
        env: simpy.Environment,
        table: TraceTable,
        families: list[Family],
        prefixes: PrefixIndex,
        options: WorkloadOptions,
        submit: Submit,
        *,
        bound_tokens: NDArray[np.int64],
        seed: int,
        default_max_new_tokens: int,
    ) -> None:
        self.env = env
        self.options = options
        self.submit = submit
        self.injected = 0
        self._prefixes = prefixes
        self._queue: Iterator[tuple[int | None, int, Family]] = starts(families, table, options, seed)
        # The trace's own columns, not lists of them or copies: those of a million calls would take more
        # memory than the run. One number of a view is a plain one.
        self._session = table.session.data
        self._prompt = table.prompt_tokens.data
        self._output = table.output_tokens.data
        self._asked = table.max_output_tokens.data
        self._default_max_new = default_max_new_tokens
        self._trigger = table.trigger.data
        self._priority = table.priority.data
        self._bound = bound_tokens.data
        self._class = eventclass.classify(table, prefixes.page_tokens).data
        delay_ns = np.rint(table.delay_s * (options.time_scale * NS_PER_S)).astype(np.int64)
        delay_ns += offsets_ns(families, table, options.time_scale)
        self._delay_ns = delay_ns.data
        self._after_offsets = table.after_offsets.data
        self._after_rows = table.after_rows

    def start(self) -> None:
        """Begin the workload; everything else happens in simulated time."""
        if self.options.sessions is not None:
            for _ in range(self.options.sessions):
                self._start_next()
        else:
            self.env.process(self._arrivals())

    def _arrivals(self) -> Generator[simpy.Event, Any, None]:
        for at_ns, copy, family in self._queue:
            assert at_ns is not None
            if at_ns > self.env.now:
                yield self.env.timeout(at_ns - int(self.env.now))
            self._start(copy, family)

    def _start_next(self) -> None:
        entry = next(self._queue, None)
        if entry is not None:
            self._start(entry[1], entry[2])

    def _start(self, copy: int, family: Family) -> None:
        if self.options.limit_calls is not None and self.injected >= self.options.limit_calls:
            return
        done: dict[int, simpy.Event] = {}
        left = [len(family.rows)]
        for row in family.rows.tolist():
            done[row] = self.env.event()
            self.env.process(self._call(row, copy, done, left))

    def _call(
        self, row: int, copy: int, done: dict[int, simpy.Event], left: list[int]
    ) -> Generator[simpy.Event, Any, None]:
        env = self.env
        begin, end = self._after_offsets[row], self._after_offsets[row + 1]
        if begin < end:
            for other in self._after_rows[begin:end].tolist():
                dependency = done.get(other)
                if dependency is not None and not dependency.processed:
                    yield dependency
        ready = int(env.now)
        delay_ns = self._delay_ns[row]
        if delay_ns:
            yield env.timeout(delay_ns)
        uid = self._prefixes.uid(row, copy)
        asked = self._asked[row]
        call = Call(
            index=self.injected,
            row=row,
            uid=uid,
            session=self._session[row],
            copy=copy,
            trigger=self._trigger[row],
            event_class=self._class[row],
            prompt_tokens=self._prompt[row],
            output_tokens=max(1, self._output[row]),
            max_new_tokens=max(1, asked if asked >= 0 else self._default_max_new),
            priority=self._priority[row],
            bound_tokens=self._bound[row],
            ready_ns=ready,
            sent_ns=int(env.now),
            done=done[row],
        )
        self.injected += 1
        yield from self.submit(call)
        yield call.done
        left[0] -= 1
        if left[0] == 0 and self.options.sessions is not None:
            self._start_next()
