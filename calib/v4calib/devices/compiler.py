"""Compiles kernels in a child process, so that one that takes ten minutes or crashes costs a row, not a run.

The child launches the small twin of a point once; what it compiled lies in Triton's cache, where this
process finds it. One child serves all requests (a start takes seconds); it is killed at the time limit and
the next request starts another.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from v4calib.devices.child import Child, ChildGone
from v4calib.grid import Point

COMMAND = (sys.executable, "-m", "v4calib.devices.compile_child")
_START_S = 60.0  # importing torch and opening the device, once


class Compiler:
    """Asks the child; `command` starts it."""

    def __init__(self, limit_s: float, command: Sequence[str] = COMMAND, start_s: float = _START_S) -> None:
        self._limit_s, self._start_s, self._command = limit_s, start_s, list(command)
        self._child: Child | None = None

    def compile(self, operation: str, point: Point) -> str | None:
        """None when it compiled and ran, else why it did not."""
        limit = self._limit_s
        if self._child is None:
            self._child = Child(self._command)
            limit += self._start_s
        self._child.send({"operation": operation, "point": point.as_dict()})
        try:
            reason: str | None = self._child.receive(limit)["reason"]
        except ChildGone as gone:
            self._child = None
            if gone.code is None:
                return f"does not compile within {self._limit_s:g} s"
            return f"the compiler {gone}"
        return reason

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.close()
