"""The runner: every point of a plan, in random order, twice, checked before it is timed.

For a point: is it possible on this device → does it compile (in a child, with a time limit) → does it agree
with its reference here → time every variant → does the time respect the roofline. Whatever says no writes a
row with its reason and no time; nothing a kernel does may end the run, unless it takes the device with it. A
pass is one permutation of the points drawn from (seed, pass), so neighbours on an axis are not neighbours in
time.

Leaves out fitting. Rows already in the journal are not measured again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from v4calib.device import Case, Device, Variant
from v4calib.errors import CalibError
from v4calib.grid import Point
from v4calib.journal import Journal
from v4calib.operations.base import MeasuredOperation
from v4calib.roofline import peaks, refuse
from v4calib.rows import Row
from v4calib.timing import Budget, measure

Progress = Callable[[int, int, str], None]  # done, total, what


@dataclass(frozen=True, slots=True)
class Job:
    """One operation with the points to measure of it."""

    operation: MeasuredOperation
    points: tuple[Point, ...]


def schedule(jobs: Sequence[Job], seed: int, passes: int) -> list[tuple[int, MeasuredOperation, Point]]:
    """(pass, operation, point) in the order of the run."""
    out = []
    for number in range(1, passes + 1):
        order = [(number, job.operation, point) for job in jobs for point in job.points]
        random.Random(f"{seed}/{number}").shuffle(order)
        out += order
    return out


def run(
    device: Device,
    jobs: Sequence[Job],
    journal: Journal,
    budget: Budget,
    progress: Progress = lambda done, total, what: None,
    over: Callable[[], bool] = lambda: False,
) -> list[Row]:
    """Measure all that the journal does not hold yet, until `over`; returns its rows."""
    order = schedule(jobs, journal.header.seed, journal.header.passes)
    done = {row.key for row in journal.rows}
    settled = {row.point.key for row in journal.rows if not row.variant}
    compiled: dict[tuple[str, str], str | None] = {}
    verified: set[str] = set()
    for i, (number, operation, point) in enumerate(order):
        progress(i, len(order), point.key)
        if point.key in settled:
            continue
        if over():
            break
        wanted = [v for v in device.variants(operation, point) if (point.key, v.label, number) not in done]
        if not wanted:
            continue
        for row in _rows(device, operation, point, number, wanted, budget, compiled, verified):
            journal.append(row)
            if not row.variant:
                settled.add(point.key)
            if row.status == "failed" and not device.alive():
                raise CalibError(
                    f"{point.key} left the device unusable ({row.reason}). {len(journal.rows)} rows are kept "
                    f"in {journal.path}: start again with --resume, which leaves this point out."
                )
    progress(len(order), len(order), "")
    return journal.rows


def _rows(
    device: Device,
    operation: MeasuredOperation,
    point: Point,
    number: int,
    wanted: Sequence[Variant],
    budget: Budget,
    compiled: dict[tuple[str, str], str | None],
    verified: set[str],
) -> list[Row]:
    def nothing(status: str, reason: str) -> list[Row]:
        return [Row(point, "", number, status, reason)]

    reason = operation.refuse(point, device.facts)
    if reason is not None:
        return nothing("unsupported", reason)
    configuration = operation.name, operation.configuration(point)
    if configuration not in compiled:
        compiled[configuration] = device.compile(operation, point)
    reason = compiled[configuration]
    if reason is not None:
        return nothing("unsupported", reason)
    try:
        case = device.case(operation, point)
    except Exception as error:  # out of memory, a launcher that refuses: a row, not the end of the run
        return nothing("failed", words_of(error))
    rows: list[Row] = []
    try:
        if point.key not in verified:  # once a process: the same kernel on the same tensors
            wrong = case.verify()
            if wrong is not None:
                return nothing("wrong", wrong)
            verified.add(point.key)
        for variant in wanted:
            rows.append(_timed(device, operation, point, number, case, variant, budget))
        return rows
    except Exception as error:  # see above; variants that were timed before it are kept
        return rows + nothing("failed", words_of(error))
    finally:
        case.close()


def _timed(
    device: Device,
    operation: MeasuredOperation,
    point: Point,
    number: int,
    case: Case,
    variant: Variant,
    budget: Budget,
) -> Row:
    before = device.sensors()
    timing = measure(case.clock or device.clock, case, variant, budget)
    after = device.sensors()
    flags = []
    if before.throttled or after.throttled:
        flags.append("throttled")
    if before.power_capped or after.power_capped:
        flags.append("power_cap")
    if timing.ci > budget.ci_goal:
        flags.append("wide")
    if not timing.steady:
        flags.append("unsteady")
    status, reason = "ok", ""
    broken = refuse(
        timing.us, operation.work(point), peaks(device.facts), operation.matrix_format(point), variant.l2
    )
    if broken is not None:
        status, reason = "rejected", broken
    elif "throttled" in flags:
        reason = f"throttled: {', '.join(sorted({*before.throttled, *after.throttled}))}"
    return Row(
        point,
        variant.label,
        number,
        status,
        reason,
        us=timing.us,
        ci=timing.ci,
        samples=timing.samples,
        flags=tuple(flags),
        sensors=after.as_dict()["values"],
    )


def words_of(error: Exception) -> str:
    """An error on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"
