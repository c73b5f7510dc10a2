"""What a little more of each resource would give: the counterfactual behind "what limits"."""

from __future__ import annotations

from v4reports import numbers
from v4reports.limiter import Gain, Limiter
from v4reports.run import Run
from v4reports.sections.base import Section, sentence
from v4reports.tables import Cell, Column, Table, row

TITLE = "What more of each resource would give"


def build(run: Run) -> Section | None:
    """None for a run that nobody asked: evidence alone stands at the head of the page then."""
    found = run.limiter
    if found is None:
        return None
    notes = tuple(f"Not asked: {title}: {reason}" for title, reason in found.unasked)
    if found.caution:
        notes = (sentence(found.caution), *notes)
    return Section("limiter", TITLE, sentence(found.sentence), ("limiter",), (gain_table(found),), notes)


def gain_table(found: Limiter) -> Table:
    columns = (
        Column("Resource", numeric=False),
        Column("Gain"),
        Column("Objective", "80 % interval of the change"),
        Column("Better in", "of resamples"),
    )
    rows = [row("As it is", "", found.shown(found.value), "")]
    rows += [
        row(
            Cell(one.title, one.change),
            Cell(numbers.signed_percent(one.gain), "sure" if one.is_sure else ""),
            Cell(found.shown(one.value), _interval(found, one)),
            numbers.UNKNOWN if one.interval == (0.0, 0.0) else numbers.percent(one.better_share),
        )
        for one in found.gains
    ]
    draws = f" in {found.repeats} draws of the workload" if found.repeats > 1 else ""
    notes = (
        f"Objective: {found.says}, over the same calls in every run "
        f"({numbers.count(found.calls)}{draws}). Resampled are the sessions; sure is what 99 % of the "
        "resamples have, and every draw.",
    )
    return Table("One resource larger at a time", columns, tuple(rows), long_names=True, notes=notes)


def _interval(found: Limiter, one: Gain) -> str:
    if one.interval is None or one.interval == (0.0, 0.0):
        return ""
    factor, unit = (1.0, found.unit)
    if found.unit == "ms":
        per_s, unit = numbers.duration_unit(max(map(abs, one.interval)) / 1e3)
        factor = per_s / 1e3
    low, high = (numbers.digits(bound * factor) for bound in one.interval)
    return f"{low} to {high}{numbers.GAP}{unit}"
