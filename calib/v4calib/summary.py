"""What a run found, in words: rows by outcome and reason, drift, ceilings and the fraction of them reached.

The achieved fraction of an operation is taken at its largest L2-cold row: the larger of its HBM time at the
measured copy bandwidth and its matrix time at the measured matrix rate (scaled from BF16 to the format by the
data sheet), over the time it took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from v4calib.device import DeviceFacts
from v4calib.drift import drift
from v4calib.operations import OPERATIONS
from v4calib.roofline import Rates, bound_us, peaks
from v4calib.rows import Measured, Row, combine, launch_us


@dataclass(frozen=True, slots=True)
class Achieved:
    """One operation at its largest row."""

    operation: str
    point: str
    us: float
    leg: str
    fraction: float


def outcome(rows: Sequence[Row]) -> list[str]:
    """Lines about what became of the rows."""
    count = Counter(row.status for row in rows)
    lines = ["rows: " + ", ".join(f"{n} {status}" for status, n in sorted(count.items()))]
    reasons = Counter(
        (row.point.operation, row.status, row.reason) for row in rows if row.status != "ok" and row.reason
    )
    for (operation, status, reason), n in sorted(reasons.items()):
        lines.append(f"  {operation}: {status}, {n} times: {reason}")
    flags = Counter(flag for row in rows for flag in row.flags)
    if flags:
        lines.append("flags: " + ", ".join(f"{n} {flag}" for flag, n in sorted(flags.items())))
    lines.append(drift(list(rows)).text())
    launches = [us for point, us in launch_us(list(rows)) if point.operation == "empty_launch"]
    if launches:
        lines.append(f"launch: an eager launch costs {launches[0]:.1f} us more than a node of a graph")
    return lines


def ceilings(rows: Sequence[Row], facts: DeviceFacts) -> Rates | None:
    """Measured rates: copy bandwidth and BF16 products; the other formats by the data sheet's ratio."""
    sheet = peaks(facts)
    found = {m.point.operation: m for m in sorted(combine(list(rows)), key=lambda m: m.point.key)}
    if sheet is None or "copy" not in found or "matmul" not in found:
        return None
    copy, product = found["copy"], found["matmul"]
    bandwidth = OPERATIONS["copy"].work(copy.point).hbm_bytes / copy.us
    bf16 = OPERATIONS["matmul"].work(product.point).matrix_flops / product.us
    times = bf16 / sheet.bf16_flops
    return replace(
        sheet,
        hbm_bytes=bandwidth,
        bf16_flops=bf16,
        fp8_flops=sheet.fp8_flops * times,
        fp4_flops=sheet.fp4_flops * times,
    )


def achieved(rows: Sequence[Row], facts: DeviceFacts) -> list[Achieved]:
    """The fraction of its ceiling that every operation reaches at its largest cold row."""
    rates = ceilings(rows, facts)
    if rates is None:
        return []
    largest: dict[str, tuple[float, str, Measured]] = {}
    for m in combine(list(rows)):
        if not m.variant.endswith("/cold") or m.point.operation not in OPERATIONS:
            continue
        op = OPERATIONS[m.point.operation]
        leg, bound = bound_us(op.work(m.point), rates, op.matrix_format(m.point), "cold")
        if bound > largest.get(op.name, (0.0, "", m))[0]:
            largest[op.name] = bound, leg, m
    return [Achieved(name, m.point.key, m.us, leg, bound / m.us) for name, (bound, leg, m) in largest.items()]
