"""Progress with an estimate of what is left, on a terminal; silence anywhere else."""

from __future__ import annotations

import time
from types import TracebackType
from typing import IO

_EVERY_S = 0.2
_SHOWN = 60


class Meter:
    """A line on `stream` that is written over; a context manager that clears it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._begin = time.monotonic()
        self._last = 0.0
        self._first: int | None = None

    def show(self, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        if not self._live or (done < total and now - self._last < _EVERY_S):
            return
        self._last = now
        if self._first is None:  # points that a resumed run skips say nothing about its speed
            self._first, self._begin = done, now
        made = done - self._first
        left = ""
        if made > 2:
            seconds = (now - self._begin) / made * (total - done)
            left = f", {seconds / 60:.0f} min left" if seconds >= 90 else f", {seconds:.0f} s left"
        self._stream.write(f"\r\x1b[K{done}/{total}{left}  {what[:_SHOWN]}")
        self._stream.flush()

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
