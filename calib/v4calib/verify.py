"""Is every kernel right on this device? One small point of each configuration, against its reference.

`run` does the same for every point before it times it; here nothing is timed, so that a node that computes
wrong is known within a minute or two. What compiles here is in Triton's cache when `run` comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from v4calib.device import Device
from v4calib.errors import CalibError
from v4calib.grid import Point
from v4calib.measure import Job, words_of
from v4calib.operations.base import LaunchedOperation, MeasuredOperation


@dataclass(frozen=True, slots=True)
class Verdict:
    """`ok` None: not possible on this device."""

    operation: str
    configuration: str
    ok: bool | None
    words: str = ""


def verify(device: Device, jobs: Sequence[Job]) -> Iterator[Verdict]:
    """All operations, one verdict a configuration."""
    for job in jobs:
        seen: set[str] = set()
        for point in job.points:
            operation = job.operation
            twin = operation.twin(point)
            configuration = operation.configuration(point)
            if configuration in seen:
                continue
            seen.add(configuration)
            reason = operation.refuse(point, device.facts)
            if reason is not None:
                yield Verdict(operation.name, configuration, None, reason)
                continue
            problem = _problem(device, operation, twin)
            if problem is not None and not device.alive():
                raise CalibError(
                    f"{operation.name} {configuration} left the device unusable: {problem}. Start again with "
                    "--ops and the others."
                )
            yield Verdict(operation.name, configuration, problem is None, problem or "")


def _problem(device: Device, operation: MeasuredOperation, point: Point) -> str | None:
    if isinstance(operation, LaunchedOperation):
        reason = device.compile(operation, point)
        if reason is not None:
            return reason
    try:
        case = device.case(operation, point)
        try:
            return case.verify()
        finally:
            case.close()
    except Exception as error:  # whatever it is, it is the finding
        return words_of(error)
