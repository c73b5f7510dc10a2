"""One child process, measured from outside: wall, CPU and peak resident memory as the kernel counts them."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a process and the children it waited for."""

    wall_s: float
    cpu_s: float
    peak_rss_mb: float

    def __add__(self, other: Cost) -> Cost:
        """Two processes, one after the other."""
        peak = max(self.peak_rss_mb, other.peak_rss_mb)
        return Cost(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s, peak)

    def as_json(self) -> dict[str, float]:
        return {
            "wall_s": round(self.wall_s, 3),
            "cpu_s": round(self.cpu_s, 3),
            "peak_rss_mb": round(self.peak_rss_mb, 1),
        }


def run(command: Sequence[str]) -> Cost:
    """Run `command`, start-up included; stop the benchmark with its own words when it fails."""
    with tempfile.TemporaryFile() as words:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=words, stderr=words)
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            words.seek(0)
            sys.exit(f"{' '.join(command)}\nexit {child.returncode}\n{words.read().decode(errors='replace')}")
    # ru_maxrss is in KiB on Linux and in bytes on macOS.
    unit = 1.0 if sys.platform == "darwin" else 1024.0
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 1e6)


def summary(costs: list[Cost]) -> dict[str, Any]:
    walls = [cost.wall_s for cost in costs]
    return {
        "median_wall_s": round(statistics.median(walls), 3),
        "median_cpu_s": round(statistics.median(cost.cpu_s for cost in costs), 3),
        "min_wall_s": round(min(walls), 3),
        "peak_rss_mb": round(max(cost.peak_rss_mb for cost in costs), 1),
        "runs": [cost.as_json() for cost in costs],
    }
