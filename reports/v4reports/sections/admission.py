"""What kept calls waiting before they were admitted."""

from __future__ import annotations

from v4reports import numbers
from v4reports.names import REASONS, label
from v4reports.run import Run
from v4reports.sections.base import Section
from v4reports.tables import Column, Table, row


def build(run: Run) -> Section:
    found = blocked_table(run)
    return Section(
        "admission", "What blocked admissions", _lead(run), ("blocked",), (found,) if found.rows else ()
    )


def blocked_table(run: Run) -> Table:
    ranked = sorted(run.steady.blocked.items(), key=lambda item: (-item[1].time_s, item[0]))
    total = sum(entry.time_s for _, entry in ranked)
    longest = ranked[0][1].time_s if ranked else 0.0
    each = max((entry.time_s / entry.calls for _, entry in ranked if entry.calls), default=0.0)
    rows = [
        row(
            label(REASONS, reason),
            f"{entry.calls:,}",
            numbers.seconds_like(entry.time_s, longest),
            numbers.seconds_like(entry.time_s / entry.calls, each) if entry.calls else numbers.UNKNOWN,
            numbers.percent(entry.time_s / total) if total else numbers.UNKNOWN,
        )
        for reason, entry in ranked
        if entry.calls or entry.time_s
    ]
    columns = (
        Column("Reason", numeric=False),
        Column("Calls"),
        Column("Waited", "in all"),
        Column("Waited", "per call"),
        Column("Share"),
    )
    return Table("Waiting before admission by reason, steady window", columns, tuple(rows))


def _lead(run: Run) -> str:
    found = [(reason, entry) for reason, entry in run.steady.blocked.items() if entry.time_s > 0]
    if not found:
        return "No call of the steady window waited to be admitted." if run.steady.blocked else ""
    total = sum(entry.time_s for _, entry in found)
    reason, entry = max(found, key=lambda item: item[1].time_s)
    name = label(REASONS, reason)
    share = numbers.percent(entry.time_s / total)
    return f"{name}: {share} of {numbers.seconds(total)} of waiting, {numbers.counted(entry.calls, 'calls')}."
