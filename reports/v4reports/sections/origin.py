"""What the numbers rest on: domain warnings, assumptions, provenance, and the manifest to repeat the run."""

from __future__ import annotations

from collections.abc import Mapping

from v4reports.names import PROVENANCE
from v4reports.run import Run
from v4reports.sections.base import Section, sentence
from v4reports.tables import Table, flattened, row, text_columns

LONGEST_OPEN = 12  # a longer provenance table opens on a click; the figures name the kinds anyway


def build(run: Run) -> Section:
    lists = (
        ("Outside the measured domain", run.domain_warnings),
        ("Assumptions of this run", run.assumptions),
    )
    sources, manifest, deployment = provenance_table(run), manifest_table(run), deployment_table(run)
    is_long = len(sources.rows) > LONGEST_OPEN
    return Section(
        "origin",
        "What the numbers rest on",
        _lead(run),
        tables=_filled(manifest) if is_long else _filled(sources, manifest),
        folded=_filled(sources, deployment) if is_long else _filled(deployment),
        lists=tuple((title, tuple(sentence(text) for text in texts)) for title, texts in lists if texts),
        notes=("In the run directory: calls.parquet has a row per call, timeline.json opens in Perfetto.",),
    )


def _filled(*tables: Table) -> tuple[Table, ...]:
    return tuple(table for table in tables if table.rows)


def provenance_table(run: Run) -> Table:
    rows = tuple(
        row(
            source.op,
            source.kind or "not stated",
            source.source,
            source.domain,
            source.residual,
        )
        for source in run.provenance
    )
    columns = text_columns("Operation", "Kind", "Source", "Domain", "Residual")
    kinds = dict.fromkeys(source.kind for source in run.provenance)
    notes = tuple(f"{kind}: {PROVENANCE[kind]}" for kind in PROVENANCE if kind in kinds)
    return Table("Provenance of step times", columns, rows, stacked=True, notes=notes)


def manifest_table(run: Run) -> Table:
    data = {key: value for key, value in run.manifest.items() if key != "deployment"}
    rows = tuple(row(key, value) for key, value in flattened(data))
    return Table("Manifest: the same inputs give the same bytes", text_columns("Key", "Value"), rows)


def deployment_table(run: Run) -> Table:
    deployment = run.manifest.get("deployment")
    data = deployment if isinstance(deployment, Mapping) else {}
    rows = tuple(row(key, value) for key, value in flattened(data))
    return Table("Deployment, every option", text_columns("Option", "Value"), rows)


def _lead(run: Run) -> str:
    counts: dict[str, int] = {}
    for source in run.provenance:
        counts[source.kind or "not stated"] = counts.get(source.kind or "not stated", 0) + 1
    if not counts:
        return "The run does not say where its step times come from."
    said = ", ".join(
        f"{count} {kind}" for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
    outside = len(run.domain_warnings)
    tail = "None was used outside its domain." if not outside else (
        "One was used outside its domain." if outside == 1 else f"{outside} were used outside their domain."
    )  # fmt: skip
    return f"Step times of {len(run.provenance)} operations: {said}. {tail}"
