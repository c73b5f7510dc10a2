"""Numbers as an operator reads them: three significant digits, a unit, no surprise in scale.

Every function takes the unit its name says and returns text. None is shown as an en dash: unknown, which is
never the same as zero.
"""

from __future__ import annotations

import math

UNKNOWN = "–"
MINUS = "−"
GAP = "\u00a0"  # between a number and its unit; a line never breaks there


def digits(value: float | None, significant: int = 3) -> str:
    """`significant` digits without exponent; thousands grouped; integers above that are rounded to one."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    decimals = significant - 1 - magnitude
    if round(abs(value), decimals) >= 10 ** (magnitude + 1):  # 9.996 becomes 10.0, not 10.00
        decimals -= 1
    text = f"{abs(value):,.{max(decimals, 0)}f}"
    return (MINUS if value < 0 else "") + text


def integer(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{round(value):,}".replace("-", MINUS)


def scaled(value: float | None) -> str:
    """Tokens and the like: 812, 41.2 k, 3.84 M, 1.20 G."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{digits(value / size)}{GAP}{suffix}"
    return digits(value) if value != round(value) else integer(value)


def size(value_bytes: float | None) -> str:
    """Bytes in powers of 1024."""
    if value_bytes is None or not math.isfinite(value_bytes):
        return UNKNOWN
    for factor, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value_bytes >= factor:
            return f"{digits(value_bytes / factor)}{GAP}{unit}"
    return f"{value_bytes:.0f}{GAP}B"


def seconds(value: float | None) -> str:
    """A duration in the unit it is spoken in: 840 µs, 12.3 ms, 1.84 s, 6.2 min, 3.4 h."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    size = abs(value)
    if size == 0:
        return f"0{GAP}s"
    for limit, factor, unit in (
        (0.9995e-6, 1e9, "ns"),
        (0.9995e-3, 1e6, "µs"),
        (0.9995, 1e3, "ms"),
        (300, 1, "s"),
        (7200, 1 / 60, "min"),
        (172_800, 1 / 3600, "h"),
    ):
        if size < limit:
            return f"{digits(value * factor)}{GAP}{unit}"
    return f"{digits(value / 86_400)}{GAP}days"


def seconds_like(value: float | None, largest: float) -> str:
    """A duration in the unit that suits `largest`, so that a column of a table is in one unit."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    factor, unit = duration_unit(largest)
    return f"{digits(value * factor)}{GAP}{unit}"


def duration_unit(largest_s: float) -> tuple[float, str]:
    """(factor from seconds, unit) for durations up to `largest_s`."""
    if largest_s < 0.9995:
        return (1e3, "ms") if largest_s >= 0.9995e-3 else (1e6, "µs")
    if largest_s < 300:
        return 1.0, "s"
    return (1 / 60, "min") if largest_s < 7200 else (1 / 3600, "h")


def tick_ms(value: float) -> str:
    """A round number of milliseconds on an axis: 20 ms, 1 s, 5 min."""
    factor, unit = duration_unit(value / 1e3)
    return f"{value / 1e3 * factor:.6g}{GAP}{unit}"


def count(value: float | None) -> str:
    """How many: exact up to five digits, then scaled."""
    return integer(value) if value is None or abs(value) < 1e5 else scaled(value)


def counted(value: float, plural: str) -> str:
    """A count with what is counted: 1 call, 1,204 calls."""
    return f"{count(value)} {plural.removesuffix('s') if value == 1 else plural}"


def ms(value: float | None) -> str:
    """A duration given in milliseconds."""
    return UNKNOWN if value is None else seconds(value / 1e3)


def percent(ratio: float | None) -> str:
    """A ratio as per cent with one decimal; two where one would make it nothing or all."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    value = ratio * 100
    if value in (0, 100):
        return f"{value:.0f}{GAP}%"
    if 99.995 <= value < 100:
        return f"> 99.99{GAP}%"
    decimals = 2 if 99.95 <= value < 100 or 0 < abs(value) < 0.05 else 1
    return f"{value:.{decimals}f}{GAP}%".replace("-", MINUS)


def dollars(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return UNKNOWN
    sign = MINUS if value < 0 else ""
    size = abs(value)
    return f"{sign}${size:,.2f}" if size >= 1 or size == 0 else f"{sign}${digits(size)}"


def times(ratio: float | None) -> str:
    return UNKNOWN if ratio is None or not math.isfinite(ratio) else f"{digits(ratio)}×"


def clock(seconds_: float, span_s: float) -> str:
    """A tick on a time axis whose whole length is `span_s`."""
    if span_s < 180:
        return f"{seconds_:g}{GAP}s"
    if span_s < 3 * 3600:
        return f"{seconds_ / 60:g}{GAP}min"
    if span_s < 4 * 86_400:
        return f"{seconds_ / 3600:g}{GAP}h"
    return f"{seconds_ / 86_400:g}{GAP}d"


def clock_ticks(start_s: float, end_s: float) -> list[float]:
    """Round instants for a time axis, four to seven of them."""
    span = end_s - start_s
    steps = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600)
    days = tuple(86_400 * m for m in (0.5, 1, 2, 5, 10, 20, 50, 100))
    step = next((s for s in steps + days if span / s <= 6), span / 5)
    first = math.ceil(start_s / step - 1e-9)
    return [step * i for i in range(first, math.floor(end_s / step + 1e-9) + 1)] if step > 0 else [start_s]


def signed_percent(ratio: float | None, decimals: int = 1) -> str:
    """A relative change with its sign, from tenfold on as a factor; ±0 for nothing after rounding."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    if ratio >= 9.995:
        return f"×{digits(1 + ratio)}"
    value = round(ratio * 100, decimals)
    if value == 0:
        return f"±0{GAP}%"
    return f"{'+' if value > 0 else MINUS}{abs(value):,.{decimals}f}{GAP}%"
