"""Step time by part, decode and prefill apart, with what each number rests on."""

from __future__ import annotations

from v4reports import numbers
from v4reports.names import KINDS, PARTS, label, ordered
from v4reports.provenance import kind_of_part
from v4reports.run import Run
from v4reports.sections.base import Section
from v4reports.tables import Cell, Column, Table, distribution_table, row


def build(run: Run) -> Section:
    kinds = kinds_present(run)
    tables = [parts_table(run, kinds)] if kinds else []
    steps = [
        (Cell(f"{label(KINDS, kind)} steps"), run.steady.step_ms[kind])
        for kind in ordered(KINDS, run.steady.step_ms)
    ]
    if steps:
        tables.append(distribution_table(f"Duration of a step, {run.engine_scope}", steps, first="Kind"))
    figures = tuple(
        f"parts-{kind}" for kind in ("decode", "prefill", "mixed") if kind != "mixed" or kind in kinds
    )
    return Section("steps", "Step time by part", _lead(run, kinds), figures, tuple(tables), beside=True)


def kinds_present(run: Run) -> list[str]:
    """Kinds of steps that took time, in the page's order."""
    return [
        kind
        for kind in ordered(KINDS, run.steady.parts_by_kind_s)
        if sum(run.steady.parts_by_kind_s[kind].values()) > 0
    ]


def parts_table(run: Run, kinds: list[str]) -> Table:
    by_kind = run.steady.parts_by_kind_s
    totals = {kind: sum(by_kind[kind].values()) for kind in kinds}
    everything = {part: sum(by_kind[kind].get(part, 0.0) for kind in kinds) for part in PARTS | dict.fromkeys(
        part for kind in kinds for part in by_kind[kind]
    )}  # fmt: skip
    ranked = sorted(
        (part for part in everything if everything[part] > 0), key=lambda part: (-everything[part], part)
    )
    largest = {kind: max(by_kind[kind].values()) for kind in kinds}
    rows = [
        row(
            label(PARTS, part),
            *(_share(by_kind[kind].get(part, 0.0), totals[kind], largest[kind]) for kind in kinds),
            kind_of_part(run, part),
        )
        for part in ranked
    ]
    rows.append(row("All parts", *(Cell("100 %", numbers.seconds(totals[kind])) for kind in kinds), ""))
    columns = (
        Column("Part", numeric=False),
        *(Column(label(KINDS, kind), "share, time") for kind in kinds),
        Column("Rests on", numeric=False),
    )
    return Table(f"Step time by part, {run.engine_scope}", columns, tuple(rows), total=True)


def _lead(run: Run, kinds: list[str]) -> str:
    if not kinds:
        return "No step ran."
    by_kind = run.steady.parts_by_kind_s
    total = sum(sum(by_kind[kind].values()) for kind in kinds)
    said = []
    for kind in kinds:
        seconds = sum(by_kind[kind].values())
        largest = max(by_kind[kind], key=lambda part: by_kind[kind][part])
        said.append(
            f"{label(KINDS, kind)} steps take {numbers.percent(seconds / total)} of the step time; their "
            f"largest part is {_within(label(PARTS, largest))} "
            f"({numbers.percent(by_kind[kind][largest] / seconds)})"
        )
    return ". ".join(said) + "."


def _within(name: str) -> str:
    """A label inside a sentence: lower case unless it is an abbreviation."""
    first = name.split(" ", 1)[0]
    return name[:1].lower() + name[1:] if first[1:].islower() else name


def _share(seconds: float, total: float, largest: float) -> Cell:
    return Cell(numbers.percent(seconds / total), numbers.seconds_like(seconds, largest))
