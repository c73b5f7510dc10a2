"""What the benchmark ran on, and a reference loop that tells how fast that was at the time."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    return {
        "cpu": _first_value(Path("/proc/cpuinfo"), "model name") or platform.processor() or "unknown",
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def reference_loop_s() -> float:
    """Seconds for a fixed piece of plain Python: integer sums, a dictionary, a heap-like list."""
    start = time.perf_counter()
    seen: dict[int, int] = {}
    value = 1
    for _ in range(3_000_000):
        value = (value * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
        seen[value & 0xFFFF] = value
    return time.perf_counter() - start


def _first_value(path: Path, key: str) -> str | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), None)


def _memory_gib() -> float | None:
    total = _first_value(Path("/proc/meminfo"), "MemTotal")
    return round(int(total.split()[0]) / 2**20, 1) if total else None
