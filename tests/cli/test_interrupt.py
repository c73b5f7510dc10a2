"""A run that is stopped leaves nothing behind: no folder, no half-written file."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STARTED = "simulating"


@pytest.mark.usefixtures("sigint_heeded")
@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_replay_leaves_nothing(long_trace: Path, tmp_path: Path, stop: int, code: int) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    command = [sys.executable, "-m", "v4sim.cli", "replay", str(long_trace), "-o", str(folder / "run")]
    process = subprocess.Popen([*command, "--stepwise"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    heard = ""
    while STARTED not in heard:
        line = process.stderr.readline()
        assert line, f"the replay ended before it was stopped: {heard}"
        heard += line
    time.sleep(0.1)
    process.send_signal(stop)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == code, heard + rest
    assert "nothing was written" in rest
    assert "Traceback" not in rest
    assert list(folder.iterdir()) == []
