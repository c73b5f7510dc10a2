"""A headless Chromium spoken to over its DevTools pipe, with the standard library alone.

`--remote-debugging-pipe` makes Chromium read JSON messages from descriptor 3 and write them to 4, each
ended by a NUL byte. A page records what it asked the network for and what landed on its console.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
# Puts the two descriptors where Chromium looks for them, then becomes Chromium.
SHIM = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
TIMEOUT_S = 60.0


class Browser:
    """One Chromium process; use it as a context manager."""

    def __init__(self, program: Path, profile_dir: Path) -> None:
        self._command = [str(program), *FLAGS, f"--user-data-dir={profile_dir}", "about:blank"]
        self._next_id = 0
        self._buffer = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        to_child, self._write_fd = _high_pipe()
        self._read_fd, from_child = _high_pipe()
        shim = [sys.executable, "-c", SHIM, str(to_child), str(from_child)]
        self._process = subprocess.Popen(
            [*shim, *self._command],
            pass_fds=(to_child, from_child),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(timeout=10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._write_fd)
        os.close(self._read_fd)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send one command and return its result; events that come meanwhile are kept."""
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._write_fd, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(time.monotonic() + TIMEOUT_S)
            if answer.get("id") == self._next_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def wait_for(self, event: str, session: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not any(e.get("method") == event and e.get("sessionId") == session for e in self.events):
            self.events.append(self._receive(deadline))

    def open(self, url: str, *, width: int, height: int = 900, scheme: str = "light") -> Page:
        """Load `url` in a new page of this width and colour scheme, and wait until it has loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            session,
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", session, features=features)
        self.events = [event for event in self.events if event.get("sessionId") != session]
        self.call("Page.navigate", session, url=url)
        self.wait_for("Page.loadEventFired", session)
        return Page(self, session)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read_fd], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError(f"Chromium did not answer within {TIMEOUT_S:g} s")
            chunk = os.read(self._read_fd, 1 << 20)
            if not chunk:
                raise OSError("Chromium closed its DevTools pipe")
            self._buffer += chunk
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(raw)
        return message


class Page:
    """One loaded page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression (the page's own scripts may be forbidden; this is not one)."""
        answer = self._browser.call(
            "Runtime.evaluate", self._session, expression=expression, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    def requests(self) -> list[str]:
        """URLs the page asked for, itself included."""
        sent = self._of("Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def complaints(self) -> list[str]:
        """Errors and warnings on the console, exceptions, and the browser's own log."""
        self.evaluate("0")  # a round trip: whatever was on its way is here now
        said = [e["params"]["entry"]["text"] for e in self._of("Log.entryAdded")]
        said += [e["params"]["exceptionDetails"]["text"] for e in self._of("Runtime.exceptionThrown")]
        calls = [e["params"] for e in self._of("Runtime.consoleAPICalled")]
        return said + [str(call["args"]) for call in calls if call["type"] in ("error", "warning", "assert")]

    def screenshot(self, path: Path, *, print_media: bool = False) -> None:
        """The whole page as a PNG."""
        if print_media:
            self._browser.call("Emulation.setEmulatedMedia", self._session, media="print")
        shot = self._browser.call("Page.captureScreenshot", self._session, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._browser.call("Page.close", self._session)

    def _of(self, method: str) -> list[dict[str, Any]]:
        return [
            event
            for event in self._browser.events
            if event.get("method") == method and event.get("sessionId") == self._session
        ]


def _high_pipe() -> tuple[int, int]:
    """A pipe whose descriptors stay clear of the 3 and 4 that the child needs."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in ends)
    for fd in ends:
        os.close(fd)
    return high[0], high[1]
