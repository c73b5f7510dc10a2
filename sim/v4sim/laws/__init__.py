"""The laws of a simulated run, each checked after the fact and on its own.

A finished run is its own witness: call columns, engine totals and the trace say the same things in
different ways, and a law is a place where they must agree. `check_laws` returns one finding per broken
law, with the first call concerned and how many there are. No finding: every law holds. `v4sim replay
--check` and the tests use it.

1 conservation    injected = completed + running + queued + rejected + aborted, at every moment
2 clocks          ready <= sent <= queued <= admit <= first <= last, first seen >= first; a call waits for
its dependencies and its delay
3 pools           never above capacity; at the end only what is cached or running is held
4 hits            within the bound of a cache that never forgets, at a page boundary, below the prompt's
end
5 tiers           device + host + storage + computed = prompt, for every admitted call
6 parts           parts of steps sum to the steps, by kind and over all; no more time is handed to calls
than passed
7 work            tokens computed by ranks = tokens computed for calls; waits fit between queueing and
admission
8 inter-token     gaps of both forms sum to first-to-last time; one gap per token after the first
9 Little's law    mean number in the system x time = sum of the times in it
10 speculation    accepted <= offered; a verify step yields at most its width

Laws that compare several runs (segments = steps, same seed = same bytes, run -> export -> replay, a
faster part never makes a lone call slower) are tests, not functions of one run.
Units: integer nanoseconds, tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from v4sim.laws import cache, calls, engine
from v4sim.laws.base import Evidence
from v4sim.metrics.calls import Calls
from v4traces.laws import Finding

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.results import RunResult
    from v4traces.table import TraceTable

LAWS = (*calls.LAWS, *cache.LAWS, *engine.LAWS)


def check_laws(
    result: RunResult, table: TraceTable, deployment: Deployment, time_scale: float = 1.0
) -> list[Finding]:
    """Every broken law of a run, in a fixed order; an empty list if all hold.

    `time_scale` is that of the workload: delays of the trace were multiplied by it.
    """
    evidence = Evidence(Calls.of(result.calls), table, deployment, result, time_scale)
    if not len(evidence.calls):
        return []
    return [finding for law in LAWS for finding in law(evidence)]
