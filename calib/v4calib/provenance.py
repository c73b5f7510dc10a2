"""What a measured number says about itself: device, driver, clocks, versions, kernels, how it was timed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from v4calib.journal import Header
from v4calib.rows import Row
from v4calib.timing import median
from v4sim import __version__
from v4sim.cost.operation import Provenance


def provenance(header: Header, rows: Sequence[Row], kernel: str, timing: str) -> Provenance:
    """Of all operations that come from these rows."""
    facts = header.facts
    kind = "torch references on a CPU, small shapes" if facts.kind == "cpu" else "kernels"
    return Provenance(
        kind="measured",
        source=f"v4calib {__version__} run, {header.grid} grid, {header.passes} passes, {kind}, "
        f"started {header.started}",
        timing=timing,
        kernel=kernel,
        commit=header.commit,
        gpu=facts.name,
        driver=facts.driver,
        clocks=clocks(rows),
        libraries=dict(facts.libraries),
    )


def clocks(rows: Sequence[Row]) -> str | None:
    """Median SM clock, power and temperature over the rows, as far as the node reports them."""
    parts = []
    for field, unit in (("sm_clock_mhz", "MHz SM"), ("power_w", "W"), ("temperature_c", "C")):
        values = [float(v) for row in rows if (v := row.sensors.get(field)) is not None]
        if values:
            parts.append(f"{median(values):.0f} {unit}")
    throttled = sum(1 for row in rows if "throttled" in row.flags)
    if throttled:
        parts.append(f"{throttled} of {len(rows)} rows throttled and left out")
    return ", ".join(parts) or None


def commit_of(folder: Path) -> str | None:
    """The commit of the checkout that the kernels lie in; None outside of one."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude", "*"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
