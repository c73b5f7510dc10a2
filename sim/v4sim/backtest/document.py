"""A backtest as data (JSON) and as the table of docs/backtest.md. Same input, same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from v4sim.backtest.intervals import Interval, calibration
from v4sim.backtest.replay import Replayed
from v4sim.backtest.schema import Refusal, TargetFile
from v4sim.backtest.score import FIT, RECONSTRUCTED, Row, range_error, summary

SCHEMA_VERSION = 1
_GROUPS = ("metric", "engine", "gpu", "model")
_PER_CALL = ("ttft", "tpot", "turn", "ratio")


@dataclass(frozen=True, slots=True)
class Backtest:
    """Everything a backtest found out."""

    file: TargetFile
    rows: tuple[Row, ...]
    replayed: Mapping[str, Replayed]
    refused: tuple[Refusal, ...]
    seeds: int
    intervals: Mapping[tuple[str, str], Interval] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        found = summary(self.rows, self.file, self.refused)
        if self.intervals:
            pairs = [
                (row.metric, self.intervals[row.target.id, row.metric.label])
                for row in self.rows
                if row.scored and (row.target.id, row.metric.label) in self.intervals
            ]
            found["intervals_80"] = calibration(pairs)
        return found


def as_json(backtest: Backtest) -> str:
    return json.dumps(as_data(backtest), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def as_data(backtest: Backtest) -> dict[str, Any]:
    """The document as plain data."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "targets_file": backtest.file.name,
        "seeds": backtest.seeds,
        "summary": backtest.summary(),
        "rows": [_row(row, backtest.intervals) for row in backtest.rows],
        "refused": [{"target": r.target, "reason": r.reason} for r in backtest.refused],
        "targets": {
            name: {"assumed": list(r.assumed), "outside_domain": list(r.warnings)}
            for name, r in sorted(backtest.replayed.items())
        },
    }
    found: dict[str, Any] = _rounded(document)
    return found


def _row(row: Row, intervals: Mapping[tuple[str, str], Interval]) -> dict[str, Any]:
    metric = row.metric
    found: dict[str, Any] = {
        "target": row.target.id,
        "engine": row.target.engine_kind,
        "gpu": row.target.gpu,
        "model": row.target.model,
        "metric": metric.name,
        "stat": metric.stat,
        "at": metric.at,
        "unit": metric.unit,
        "family": row.family,
        "status": row.status,
        "predicted": row.predicted,
        "by_seed": list(row.by_seed),
        "value": metric.value,
        "low": metric.low,
        "high": metric.high,
        "error": row.error,
        "error_from_value": None if row.predicted is None else row.predicted / metric.value - 1,
        "inside": None if row.predicted is None else row.inside,
    }
    if row.reason:
        found["reason"] = row.reason
    if row.without_source is not None:
        found["error_without_source"] = range_error(row.without_source, metric)
    interval = intervals.get((row.target.id, metric.label))
    if interval is not None:
        found["interval_80"] = list(interval)
    return found


def _rounded(value: Any) -> Any:
    """Six significant digits: the last bits differ between processors."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return value


def as_markdown(backtest: Backtest, notes: str = "") -> str:
    """The committed page. `notes`: hand-written findings, put below the summary as they are."""
    return "\n".join(_page(backtest, notes)) + "\n"


def _page(backtest: Backtest, notes: str) -> Iterator[str]:
    found = backtest.summary()
    targets = found["targets"]
    yield "# Predictions against published measurements"
    yield ""
    yield (
        "`make backtest` writes this page from `sim/v4sim/data/targets.json`. The error is zero inside the "
        "published range and counted from its nearest edge outside. Nothing is fitted to these numbers."
    )
    yield ""
    yield f"{targets['run']} of {targets['total']} configurations were run, with {backtest.seeds} seeds each."
    yield ""
    yield from _summary_table(found)
    yield ""
    apart = found["workload_reconstructed"]
    yield (
        f"Apart from the score: workload reconstructed {_line(apart)}; targets that share their source "
        f"with an engine constant {_line(found['fit'])}, and with that constant left out a median of "
        f"{_share(found['fit']['leave_source_out_median_abs_error'])}."
    )
    if "intervals_80" in found:
        held = found["intervals_80"]
        yield ""
        yield (
            f"80 % intervals: {_share(held['inside'])} of {held['count']} "
            f"published values inside, median relative width {_share(held['median_relative_width'])}, median "
            f"interval score {held['median_interval_score']:.2f} of the value."
        )
    if notes:
        yield ""
        yield notes.rstrip()
    for title, families in (("Per call", _PER_CALL), ("Aggregate", ("throughput", "capacity", "other"))):
        yield ""
        yield f"## {title}"
        yield ""
        yield from _rows([row for row in backtest.rows if row.family in families])
    yield ""
    yield "## Refused"
    yield ""
    for refusal in backtest.refused:
        yield f"- {refusal.target}: {refusal.reason}"
    if not backtest.refused:
        yield "None."
    yield ""
    yield "## Assumed, because the source does not state it"
    yield ""
    yield from _assumed(backtest)
    outside = sorted({warning for r in backtest.replayed.values() for warning in r.warnings})
    if outside:
        yield ""
        yield "## Outside the profile's tables"
        yield ""
        for name, replayed in sorted(backtest.replayed.items()):
            for warning in replayed.warnings:
                yield f"- {name}: {warning}"


def _summary_table(found: Mapping[str, Any]) -> Iterator[str]:
    yield "| | numbers | predicted | inside the range | median error | p90 error | bias |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    yield _figures("all", found)
    for group in _GROUPS:
        for label, figures in found[f"by_{group}"].items():
            yield _figures(f"{group} {label}", figures)


def _figures(label: str, figures: Mapping[str, Any]) -> str:
    return (
        f"| {label} | {figures['count']} | {_share(figures['coverage'])} | {figures['inside']} | "
        f"{_share(figures['median_abs_error'])} | {_share(figures['p90_abs_error'])} | "
        f"{_share(figures['bias'], sign=True)} |"
    )


def _line(figures: Mapping[str, Any]) -> str:
    if not figures["predicted"]:
        return "none"
    return (
        f"{figures['predicted']} numbers, median {_share(figures['median_abs_error'])}, bias "
        f"{_share(figures['bias'], sign=True)}"
    )


def _rows(rows: Sequence[Row]) -> Iterator[str]:
    yield "| target | metric | predicted | published | error | |"
    yield "|---|---|---:|---:|---:|---|"
    for row in rows:
        metric = row.metric
        published = _number(metric.value)
        if metric.low != metric.high:
            published += f" ({_number(metric.low)} to {_number(metric.high)})"
        remark = "" if row.scored else row.status
        if row.status == FIT and row.without_source is not None:
            remark += f"; {_share(range_error(row.without_source, metric), sign=True)} without the constant"
        elif row.status == RECONSTRUCTED:
            remark = "reconstructed"
        predicted = "-" if row.predicted is None else _number(row.predicted)
        error = "-" if row.error is None else "inside" if row.inside else _share(row.error, sign=True)
        yield f"| {row.target.id} | {metric.label} | {predicted} | {published} | {error} | {remark} |"


def _assumed(backtest: Backtest) -> Iterator[str]:
    """One line an assumption, with the targets that it was made for."""
    by_text: dict[str, list[str]] = {}
    for name, replayed in sorted(backtest.replayed.items()):
        for text in replayed.assumed:
            by_text.setdefault(text, []).append(name)
    for text, names in sorted(by_text.items()):
        yield f"- {text}: {', '.join(names)}"
    if not by_text:
        yield "Nothing."


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _share(value: float | None, sign: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+.1%}" if sign else f"{value:.1%}"
