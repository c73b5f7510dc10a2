"""Predicted against seen: figures for a person, for machines, and a TOML fragment of what was fitted.

Quantiles are of the same calls on both sides. Units in the names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4sim.observe.fit import Fit
from v4sim.observe.join import Joined
from v4sim.observe.predict import Predicted, seen_column

_METRICS = (
    ("ttft_ms", "ttft_s"),
    ("engine_ttft_ms", "engine_ttft_s"),
    ("tpot_ms", "tpot_s"),
    ("e2e_ms", "e2e_s"),
)
_QUANTILES = (("p50", 0.5), ("p95", 0.95))


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: seen, predicted with the deployment as given, and with what was fitted."""

    name: str
    calls: int
    seen: float
    before: float
    after: float

    def error(self, predicted: float) -> float | None:
        return (predicted - self.seen) / self.seen if self.seen else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All figures, and what they stand on."""

    rows: tuple[Row, ...]
    fit: Fit
    notes: tuple[str, ...]
    formats: tuple[str, ...]

    def as_json(self) -> str:
        accepted = self.fit.acceptance
        found: dict[str, Any] = {
            "schema_version": 1,
            "formats": list(self.formats),
            "calls": len(self.fit.before.ttft_s),
            "notes": list(self.notes),
            "figures": [
                {
                    "name": row.name,
                    "calls": row.calls,
                    "seen": row.seen,
                    "predicted": row.before,
                    "error": row.error(row.before),
                    "predicted_fitted": row.after,
                    "error_fitted": row.error(row.after),
                }
                for row in self.rows
            ],
            "constants": {
                c.name: {"value": c.value, "fitted": c.fitted, "why": c.why, "calls": c.calls}
                for c in self.fit.constants
            },
            "acceptance": None
            if accepted is None
            else {
                "tokens_per_step": accepted.length,
                "calls": accepted.calls,
                "by_phase": {
                    phase: {"tokens_per_step": length, "tokens": tokens}
                    for phase, (length, tokens) in accepted.by_phase.items()
                },
            },
        }
        return json.dumps(found, indent=1, sort_keys=True) + "\n"

    def as_text(self) -> str:
        lines = [f"{'':<16}{'calls':>7}{'seen':>11}{'predicted':>11}{'error':>8}{'fitted':>11}{'error':>8}"]
        for row in self.rows:
            errors = [row.error(value) for value in (row.before, row.after)]
            before, after = ("-" if e is None else f"{e:+.1%}" for e in errors)
            lines.append(
                f"{row.name:<16}{row.calls:>7}{row.seen:>11,.4g}{row.before:>11,.4g}{before:>8}"
                f"{row.after:>11,.4g}{after:>8}"
            )
        for c in self.fit.constants:
            state = f"{c.value:,.4g}" if c.fitted else f"kept at {c.value:,.4g}"
            lines.append(f"engine.{c.name}: {state} ({c.why})")
        accepted = self.fit.acceptance
        if accepted is not None:
            phases = ", ".join(f"{phase} {length:.2f}" for phase, (length, _) in accepted.by_phase.items())
            lines.append(f"tokens a verify step: {accepted.length:.2f}{f' ({phases})' if phases else ''}")
        return "\n".join([*lines, *self.notes])

    def as_toml(self) -> str:
        """What was fitted, to be merged into the deployment's own file."""
        lines = [f"# Fitted by v4sim observe to {len(self.fit.before.ttft_s)} calls seen."]
        fitted = [c for c in self.fit.constants if c.fitted]
        if fitted:
            lines.append("[engine]")
            lines += [f"{c.name} = {c.value:.6g}  # {c.why}" for c in fitted]
        lines += [f"# {c.name} was not fitted: {c.why}" for c in self.fit.constants if not c.fitted]
        accepted = self.fit.acceptance
        if accepted is not None and self.fit.deployment.speculation.kind != "off":
            lines += ["", "[speculation]", f'acceptance = "{self.fit.deployment.speculation.acceptance}"']
            lines += [
                f"# {phase}: {length:.3f} tokens a verify step over {tokens} tokens"
                for phase, (length, tokens) in accepted.by_phase.items()
            ]
        return "\n".join(lines) + "\n"


def compare(joined: Joined, fit: Fit, formats: tuple[str, ...] = ()) -> Comparison:
    """The figures of calls that both sides have."""
    return Comparison(tuple(_rows(joined, fit)), fit, tuple(joined.notes), formats)


def _rows(joined: Joined, fit: Fit) -> Iterator[Row]:
    for label, name in _METRICS:
        seen = seen_column(joined, name)
        before, after = getattr(fit.before, name), getattr(fit.after, name)
        both = np.isfinite(seen) & np.isfinite(before) & np.isfinite(after)
        if not both.any():
            continue
        for stat, q in _QUANTILES:
            values = [1e3 * float(np.quantile(column[both], q)) for column in (seen, before, after)]
            yield Row(f"{label} {stat}", int(both.sum()), *values)
    cached = seen_column(joined, "cached_tokens")
    told = np.isfinite(cached)
    if told.any():
        prompts = joined.table.prompt_tokens[told].sum()
        before, after = (_ratio(p, told, prompts) for p in (fit.before, fit.after))
        yield Row("hit ratio", int(told.sum()), float(cached[told].sum() / prompts), before, after)


def _ratio(predicted: Predicted, told: NDArray[np.bool_], prompts: int) -> float:
    return float(predicted.cached_tokens[told].sum() / prompts)
