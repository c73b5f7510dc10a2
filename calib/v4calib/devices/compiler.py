"""Compiles kernels in a child process, so that one that takes ten minutes or crashes costs a row, not a run.

The child launches the small twin of a point once; what it compiled lies in Triton's cache, where this
process finds it. One child serves all requests (a start takes seconds); it is killed at the time limit and
the next request starts another. Requests and replies are JSON lines.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from queue import Empty, Queue
from typing import IO

from v4calib.grid import Point

COMMAND = (sys.executable, "-m", "v4calib.devices.compile_child")
_START_S = 60.0  # importing torch and opening the device, once


class Compiler:
    """Asks the child; `command` starts it."""

    def __init__(self, limit_s: float, command: Sequence[str] = COMMAND, start_s: float = _START_S) -> None:
        self._limit_s, self._start_s, self._command = limit_s, start_s, list(command)
        self._child: subprocess.Popen[str] | None = None
        self._replies: Queue[str | None] = Queue()

    def compile(self, operation: str, point: Point) -> str | None:
        """None when it compiled and ran, else why it did not."""
        limit = self._limit_s
        if self._child is None:
            self._start()
            limit += self._start_s
        child = self._child
        assert child is not None
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps({"operation": operation, "point": point.as_dict()}) + "\n")
            child.stdin.flush()
            reply = self._replies.get(timeout=limit)
        except Empty:
            self.close()
            return f"does not compile within {self._limit_s:g} s"
        except OSError:
            reply = None
        if reply is None:
            code = child.wait(timeout=10)
            self.close()
            return f"the compiler ended with code {code}"
        reason: str | None = json.loads(reply)["reason"]
        return reason

    def _start(self) -> None:
        self._replies = Queue()
        self._child = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._child.stdout is not None
        threading.Thread(target=_listen, args=(self._child.stdout, self._replies), daemon=True).start()

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()


def _listen(stream: IO[str], replies: Queue[str | None]) -> None:
    """Lines of the child until it ends; None then."""
    try:
        for line in stream:
            replies.put(line)
    except ValueError:  # closed under the reader: the child was ended on purpose
        return
    replies.put(None)
