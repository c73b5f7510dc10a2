"""A child process that answers JSON lines: what it does may crash or hang, and costs no more than that.

`receive` waits up to a limit; a child that is silent for longer, or that ended, is killed and gone.
Leaves out what is asked (see `compiler` and `ranks`).
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from queue import Empty, Queue
from typing import IO, Any


class ChildGone(Exception):
    """There is no answer; the message says why. `code` is None where the time ran out."""

    def __init__(self, words: str, code: int | None) -> None:
        super().__init__(words)
        self.code = code


class Child:
    """One process; requests and replies are objects."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._replies: Queue[str | None] = Queue()
        assert self._process.stdout is not None
        threading.Thread(target=_listen, args=(self._process.stdout, self._replies), daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, request: Mapping[str, Any]) -> None:
        """One line; a child that is gone is found out by `receive`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            return

    def receive(self, limit_s: float) -> Any:
        """The next reply."""
        try:
            reply = self._replies.get(timeout=limit_s)
        except Empty:
            self.close()
            raise ChildGone(f"no answer within {limit_s:g} s", None) from None
        if reply is None:
            code = self._process.wait(timeout=10)
            self.close()
            raise ChildGone(f"ended with code {code}", code)
        return json.loads(reply)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # a request that it never read
                    stream.close()


def _listen(stream: IO[str], replies: Queue[str | None]) -> None:
    """Lines of the child until it ends; None then."""
    try:
        for line in stream:
            replies.put(line)
    except ValueError:  # closed under the reader: the child was ended on purpose
        return
    replies.put(None)
