"""A profile in rows of plain values, for people and for JSON."""

from __future__ import annotations

from typing import Any

from v4sim.cost.profile import Profile


def describe(profile: Profile) -> list[dict[str, Any]]:
    """One row an operation."""
    rows = []
    for name, operation in sorted(profile.operations.items()):
        origin, residual = profile.provenance_of(operation), operation.residual
        rows.append(
            {
                "operation": name,
                "domain": operation.domain,
                "kind": origin.kind,
                "p95_error": residual.p95,
                "compared_rows": residual.rows,
                "source": origin.source,
            }
        )
    return rows


def describe_operation(profile: Profile, name: str) -> list[dict[str, Any]]:
    """The numbers of one operation, one row a point or a term; microseconds."""
    operation = profile.operation(name)
    if operation.terms:
        return [
            {"term": t.name, "us_per": " x ".join(t.axes) or "call", "coefficient": t.coefficient}
            for t in operation.terms
        ]
    first = operation.axes[0]
    if len(operation.axes) == 1:
        return [{first.name: p, "us": v} for p, v in zip(first.points, operation.values, strict=True)]
    second = operation.axes[1]
    return [
        {first.name: p, second.name: q, "us": v}
        for p, row in zip(first.points, operation.values, strict=True)
        for q, v in zip(second.points, row, strict=True)
    ]
