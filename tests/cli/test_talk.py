"""Progress is for a person who watches: drawn on a terminal, silent in a pipe, without colour where asked."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from v4sim.commands import talk

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
TIME_LEFT = re.compile(r"\d:\d\d:\d\d")


def watched_replay(trace: Path, run: Path, **environment: str) -> str:
    """What a replay writes to a terminal on its stderr."""
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "v4sim.cli", "replay", str(trace), "-o", str(run), "--no-report"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env={"PATH": os.environ["PATH"], "TERM": "xterm-256color", **environment},
    )
    os.close(terminal)
    seen = b""
    while True:
        try:
            part = os.read(screen, 4096)
        except OSError:  # Linux ends a pty with EIO when the other side has closed
            break
        if not part:
            break
        seen += part
    os.close(screen)
    assert process.wait(timeout=120) == 0, seen.decode()
    return seen.decode()


def test_a_terminal_sees_how_long_it_will_take(small_trace: Path, tmp_path: Path) -> None:
    seen = watched_replay(small_trace, tmp_path / "run")
    assert TIME_LEFT.search(seen)
    assert COLOUR.search(seen)


def test_no_color_is_heeded(small_trace: Path, tmp_path: Path) -> None:
    colours = set(COLOUR.findall(watched_replay(small_trace, tmp_path / "run", NO_COLOR="1")))
    styles = {"\x1b[0m", "\x1b[m", "\x1b[1m", "\x1b[2m", "\x1b[3m"}  # bold and the like are no colours
    assert colours <= styles


def test_a_pipe_sees_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with talk.progress("simulating") as advance:
        assert advance is None
    assert capsys.readouterr().err == ""
