"""Collects the operations of one profile and how well they repeat the rows they come from.

A builder adds operations and then compares predictions with rows that are not nodes of its tables
(published rows beside them, or measured ones that were held out); the residuals that a profile carries, and
`v4calib check`, come from these comparisons alone. An operation without such rows says so with `assumed`: an
error taken on purpose, rows = 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from v4calib.curves import rounded
from v4sim.cost.operation import Axis, Operation, Provenance, Residual, Term
from v4sim.cost.profile import Profile


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row against the profile."""

    operation: str
    predicted_us: float
    published_us: float  # or measured

    @property
    def error(self) -> float:
        return self.predicted_us / self.published_us - 1.0


class Draft:
    """A profile while it is built."""

    def __init__(self, gpu: str) -> None:
        self.gpu = gpu
        self.operations: dict[str, Operation] = {}
        self.provenances: dict[str, Provenance] = {}
        self.comparisons: list[Comparison] = []

    def other(self, key: str, kind: str, source: str, gpu: str | None = None) -> str:
        """Provenance of anything that is not a table of the package; returns its key."""
        self.provenances.setdefault(key, Provenance(kind, source, None, None, None, gpu, None, None, {}))
        return key

    def add_table(
        self,
        name: str,
        axes: Mapping[str, Sequence[float]],
        values: Sequence[float] | Sequence[Sequence[float]],
        provenance: str,
        note: str = "",
        assumed: float | None = None,
        unit: str = "us",
    ) -> None:
        """A table over one or two axes, values rounded."""
        frozen = tuple(
            tuple(rounded(v) for v in row) if isinstance(row, Sequence) else rounded(row) for row in values
        )
        self._add(
            Operation(
                name,
                tuple(Axis(k, tuple(float(p) for p in v)) for k, v in axes.items()),
                frozen,
                (),
                "sum",
                provenance,
                _assumed(assumed),
                note,
                unit,
            )
        )

    def add_fit(
        self,
        name: str,
        axes: Mapping[str, tuple[float, float]],
        terms: Sequence[tuple[str, float, tuple[str, ...]]],
        combine: str,
        provenance: str,
        note: str = "",
        assumed: float | None = None,
    ) -> None:
        """A sum or maximum of coefficient x axes."""
        self._add(
            Operation(
                name,
                tuple(Axis(k, v) for k, v in axes.items()),
                (),
                tuple(Term(n, float(f"{c:.4g}"), a) for n, c, a in terms),
                combine,
                provenance,
                _assumed(assumed),
                note,
            )
        )

    def _add(self, operation: Operation) -> None:
        assert operation.name not in self.operations, operation.name
        self.operations[operation.name] = operation

    def compare(self, name: str, predicted_us: float, published_us: float) -> None:
        """Predicted against one published row that is not a node of the table."""
        if published_us > 0:
            self.comparisons.append(Comparison(name, predicted_us, published_us))

    def finished(self, name: str, description: str, generator: str) -> Profile:
        """The profile, residuals filled from the comparisons."""
        errors: dict[str, list[float]] = {}
        for c in self.comparisons:
            errors.setdefault(c.operation, []).append(abs(c.error))
        operations = {
            k: replace(v, residual=_residual(errors[k])) if k in errors else v
            for k, v in self.operations.items()
        }
        used = {op.provenance for op in operations.values()}
        return Profile(
            name=name,
            gpu=self.gpu,
            description=description,
            generator=generator,
            provenances={k: v for k, v in sorted(self.provenances.items()) if k in used},
            operations=dict(sorted(operations.items())),
        )


def _residual(errors: Sequence[float]) -> Residual:
    values = np.asarray(errors)
    return Residual(
        float(f"{float(np.median(values)):.3g}"),
        float(f"{float(np.quantile(values, 0.95)):.3g}"),
        len(errors),
    )


def _assumed(p95: float | None) -> Residual:
    return Residual(round((p95 or 0.1) / 2, 4), p95 or 0.1, 0)
