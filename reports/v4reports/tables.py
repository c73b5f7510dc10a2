"""Tables as plain data, and the two shapes that come up again: distributions, and names with values.

Every table has a caption and names the unit in its column heads, so that it can be read without colour,
without the figure beside it, and by a screen reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from v4reports import numbers
from v4reports.run import Dist


@dataclass(frozen=True, slots=True)
class Cell:
    """`note` is a smaller second line; `flag` a short word that marks the cell (never colour alone)."""

    text: str
    note: str = ""
    flag: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    unit: str = ""
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """The first cell of a row is its heading. A `stacked` table becomes a list of cards on a narrow page, a
    table with `long_names` gives each row's name a line of its own there; the last row of a `total` table
    sums up those above."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    stacked: bool = False
    total: bool = False
    long_names: bool = False
    notes: tuple[str, ...] = ()


def row(*cells: str | Cell) -> tuple[Cell, ...]:
    return tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)


def text_columns(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, numeric=False) for name in names)


def distribution_table(
    caption: str,
    named: Sequence[tuple[Cell, Dist]],
    *,
    first: str,
    limit_ms: float | None = None,
    judged: frozenset[str] | None = None,
    notes: tuple[str, ...] = (),
) -> Table:
    """Count and percentiles of quantities in milliseconds, all rows in one unit.

    A p95 above `limit_ms` is flagged, in the rows named in `judged` (None: in all).
    """
    # The unit of the largest, unless the smallest median could then hardly be read.
    largest, smallest = max(dist.p99 for _, dist in named), min(dist.p50 for _, dist in named)
    per_s, unit = numbers.duration_unit(min(largest, 200.0 * smallest) / 1e3)
    factor = per_s / 1e3
    has_interval = any(dist.p50_ci or dist.p95_ci for _, dist in named)

    def value(number: float, interval: tuple[float, float] | None = None) -> Cell:
        is_wide = interval is not None and interval[0] < interval[1]
        note = "–".join(numbers.digits(bound * factor) for bound in interval) if interval and is_wide else ""
        return Cell(numbers.digits(number * factor), note)

    rows = []
    for name, dist in named:
        p95 = value(dist.p95, dist.p95_ci)
        if limit_ms is not None and dist.p95 > limit_ms and (judged is None or name.text in judged):
            p95 = Cell(p95.text, p95.note, "over")
        rows.append(
            row(
                name,
                numbers.count(dist.count),
                value(dist.p50, dist.p50_ci),
                value(dist.p90),
                p95,
                value(dist.p99),
            )
        )
    columns = (
        Column(first, numeric=False),
        Column("Count"),
        *(Column(percentile, unit) for percentile in ("p50", "p90", "p95", "p99")),
    )
    if has_interval:
        notes = (*notes, "Small numbers: 80 % interval, sessions resampled.")
    if limit_ms is not None and any(cell.flag for cells in rows for cell in cells):
        notes = (*notes, f"“over”: above the objective of {numbers.ms(limit_ms)}.")
    return Table(caption, columns, tuple(rows), notes=notes)


def value_table(
    caption: str, rows: Iterable[tuple[str, str, str]], heads: tuple[str, str] = ("Quantity", "Value")
) -> Table:
    """(name, value, meaning) lines; a line whose value is unknown is left out, not shown as zero."""
    known = tuple(
        row(Cell(name, meaning), value) for name, value, meaning in rows if value != numbers.UNKNOWN
    )
    return Table(caption, (Column(heads[0], numeric=False), Column(heads[1])), known)


def flattened(data: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """A nested object as dotted keys and texts, in file order. Null is said, not left out."""
    out: list[tuple[str, str]] = []
    for key, value in data.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping):
            out += flattened(value, name) if value else [(name, "none")]
        elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            for index, item in enumerate(value):
                out += (
                    flattened(item, f"{name}[{index}]") if isinstance(item, Mapping) else [(name, str(item))]
                )
        else:
            out.append((name, plain(value)))
    return out


def plain(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(plain(item) for item in value) or "none"
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 100_000 else str(value)
