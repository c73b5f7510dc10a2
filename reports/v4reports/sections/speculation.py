"""Speculative decoding: how many draft tokens survive, by position and phase."""

from __future__ import annotations

from v4reports import numbers
from v4reports.names import PHASES, label, ordered
from v4reports.run import Run, Speculation
from v4reports.sections.base import Section
from v4reports.tables import Column, Table, row


def build(run: Run) -> Section:
    spec = run.steady.speculation
    if spec is None or not spec.is_on:
        return Section("speculation", "Speculation", "Speculation is off in this deployment.")
    found = acceptance_table(spec)
    kind = spec.kind.upper() if spec.kind == "mtp" else spec.kind
    lead = f"{kind} with {spec.draft_tokens} draft {'token' if spec.draft_tokens == 1 else 'tokens'} per step"
    if spec.mean_accepted_length is not None:
        lead += f"; a verify step yields {numbers.digits(spec.mean_accepted_length)} tokens on average"
    return Section("speculation", "Speculation", lead + ".", ("speculation",), (found,) if found.rows else ())


def acceptance_table(spec: Speculation) -> Table:
    width = max((len(phase.offered) for phase in spec.by_phase.values()), default=0)
    rows = [
        row(
            label(PHASES, name),
            numbers.scaled(sum(spec.by_phase[name].offered)),
            *(numbers.percent(rate) for rate in spec.by_phase[name].rate),
            *([numbers.UNKNOWN] * (width - len(spec.by_phase[name].offered))),
        )
        for name in ordered(PHASES, spec.by_phase)
    ]
    columns = (
        Column("Phase", numeric=False),
        Column("Offered", "tokens"),
        *(Column(str(i + 1), "position") for i in range(width)),
    )
    return Table("Draft tokens accepted by position, whole run", columns, tuple(rows))
