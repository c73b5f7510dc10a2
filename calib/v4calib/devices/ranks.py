"""Groups of processes for collectives: one a rank, kept from point to point, ended when they fall silent.

A group of a size starts when the first point needs it (seconds: torch and NCCL), stays, and is ended by an
error or with the device. The time of a sample is the slowest rank's. Units: microseconds.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from v4calib.device import Case, Variant
from v4calib.devices.child import Child, ChildGone
from v4calib.errors import CalibError
from v4calib.grid import Point

MODULE = "v4calib.devices.rank_child"
_START_S = 120.0
_ANSWER_S = 60.0


class Ranks:
    """The groups of one device, by size."""

    def __init__(self, device: str, start_s: float = _START_S, answer_s: float = _ANSWER_S) -> None:
        self._device, self._start_s, self._answer_s = device, start_s, answer_s
        self._groups: dict[int, list[Child]] = {}
        self.folder = tempfile.TemporaryDirectory(prefix="v4calib-")  # where a group finds itself
        self._started = 0

    def case(self, point: Point) -> RankCase:
        """A collective, ready to be timed."""
        return RankCase(self, point)

    def processes(self, size: int) -> list[int]:
        """Their ids."""
        return [child.pid for child in self._groups[size]]

    def ask(self, size: int, request: dict[str, Any]) -> list[Any]:
        """The answers of all ranks; an error of one ends the group, since the others may wait for it."""
        limit = self._answer_s
        if size not in self._groups:
            self._groups[size] = self._start(size)
            limit += self._start_s
        group = self._groups[size]
        for child in group:
            child.send(request)
        try:
            answers = [child.receive(limit) for child in group]
        except ChildGone as gone:
            self._end(size)
            raise CalibError(f"a rank of {size} {gone}") from None
        errors = [answer["error"] for answer in answers if "error" in answer]
        if errors:
            self._end(size)
            raise CalibError(errors[0])
        return answers

    def _start(self, size: int) -> list[Child]:
        self._started += 1
        store = Path(self.folder.name) / f"store{self._started}"
        return [
            Child([sys.executable, "-m", MODULE, self._device, str(rank), str(size), str(store)])
            for rank in range(size)
        ]

    def _end(self, size: int) -> None:
        for child in self._groups.pop(size):
            child.close()

    def close(self) -> None:
        """End all groups."""
        for size in list(self._groups):
            self._end(size)
        self.folder.cleanup()


@dataclass
class RankCase:
    """One collective of one size; it is its own clock."""

    ranks: Ranks
    point: Point
    copies: int = 1
    copy_bytes: int = 0

    @property
    def clock(self) -> RankCase:
        return self

    def launch(self, copy: int) -> None:
        self.sample_us(self, Variant("eager", "hot"), 1)

    def verify(self) -> str | None:
        """Every rank holds what all of them together must give."""
        answers = self._ask("verify", {})
        return next((a["wrong"] for a in answers if a["wrong"] is not None), None)

    def sample_us(self, case: Case, variant: Variant, count: int) -> list[float]:
        answers = self._ask("time", {"mode": variant.mode, "count": count})
        return [max(times) for times in zip(*(a["us"] for a in answers), strict=True)]

    def _ask(self, what: str, more: dict[str, Any]) -> list[Any]:
        sizes = {"way": self.point.word("way"), "bytes": self.point["bytes"]}
        return self.ranks.ask(self.point["gpus"], {"what": what, **sizes, **more})

    def close(self) -> None:
        """The group stays for the next point."""
