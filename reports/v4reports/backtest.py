"""A backtest as one HTML page: how far predictions are from published measurements, number by number.

Takes the document that `v4sim backtest --json` writes (schema 1), so that a page can also be made of a file.
The page needs no network and no script. Leaves out the findings of docs/backtest.md, which are about the
project's own targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from v4reports import numbers
from v4reports.figures.errors import Band, Errors, draw_errors, draw_intervals
from v4reports.tables import Cell, Column, Table, row, text_columns
from v4sim.errors import RunError

SCHEMA_VERSION = 1
FAMILIES = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "turn": "Turn",
    "ratio": "Ratio",
    "throughput": "Throughput",
    "capacity": "Capacity",
    "other": "Other",
}
ENGINES = {"sglang": "SGLang", "vllm": "vLLM"}
PER_CALL = ("ttft", "tpot", "turn", "ratio")
AGGREGATE = ("throughput", "capacity", "other")
GOAL = "The goal is a median of 10 % and nine of ten within 30 %."


def backtest(document: Mapping[str, Any], out: Path, force: bool = False) -> Path:
    """Write the page of a backtest's document and return its path.

    Raises RunError when the document is of another schema, or when the file exists and `force` is not set.
    """
    from v4reports import page
    from v4reports.figures.canvas import house_style
    from v4reports.output import check_free, write_page

    if document.get("schema_version") != SCHEMA_VERSION:
        raise RunError(
            f"the backtest has schema_version {document.get('schema_version')!r}, this page is of "
            f"{SCHEMA_VERSION}: run `v4sim backtest --json` with this version."
        )
    check_free(out, force=force)
    rows = document["rows"]
    with house_style():
        chart = page.trusted(draw_errors(error_rows(rows)))
        intervals = page.trusted(draw_intervals(bands(rows)))
    summary = document["summary"]
    html = (
        page.environment()
        .get_template("backtest.html")
        .render(
            title=f"{document['targets_file']} · v4sim backtest",
            sentence=sentence(summary),
            number=numbers.percent(summary["median_abs_error"]),
            facts=facts(document),
            goal=GOAL,
            chart=chart,
            intervals=intervals,
            calibration=calibration(summary),
            summary=summary_table(summary),
            apart=apart_table(summary),
            tables=[
                table
                for table in (
                    row_table("Per call", rows, PER_CALL),
                    row_table("Aggregate", rows, AGGREGATE),
                )
                if table.rows
            ],
            refused=refused_table(document["refused"]),
            assumed=assumed_table(document["targets"]),
        )
    )
    write_page(out, html, force=force)
    return out


def sentence(summary: Mapping[str, Any]) -> str:
    """What the page says first."""
    if not summary["predicted"]:
        return "No published number was predicted."
    return (
        f"Half of {summary['predicted']} published numbers are predicted within "
        f"{numbers.percent(summary['median_abs_error'])}, nine of ten within "
        f"{numbers.percent(summary['p90_abs_error'])}; on the whole predictions are "
        f"{numbers.signed_percent(summary['bias'])} off."
    )


def facts(document: Mapping[str, Any]) -> tuple[str, ...]:
    targets = document["summary"]["targets"]
    return (
        f"targets {document['targets_file']}",
        f"{targets['run']} of {targets['total']} configurations run, {targets['refused']} refused",
        f"{document['seeds']} seeds where something is random",
    )


def calibration(summary: Mapping[str, Any]) -> str:
    found = summary.get("intervals_80")
    if not found or not found["count"]:
        return ""
    return (
        f"{numbers.percent(found['inside'])} of {found['count']} published values lie inside their 80 % "
        f"interval (70 to 90 % is calibrated); the median interval is "
        f"{numbers.percent(found['median_relative_width'])} of the value wide, and the median interval score "
        f"is {numbers.digits(found['median_interval_score'])} of the value."
    )


def error_rows(rows: Sequence[Mapping[str, Any]]) -> list[Errors]:
    """Errors of the scored numbers by kind of quantity and engine, in the order of FAMILIES."""
    found: dict[tuple[str, str], list[float]] = {}
    for one in rows:
        if one["status"] == "scored" and one["error"] is not None:
            found.setdefault((one["family"], one["engine"]), []).append(one["error"])
    order = list(FAMILIES)
    keys = sorted(found, key=lambda key: (order.index(key[0]), key[1]))
    return [
        Errors(f"{FAMILIES[family]}, {ENGINES.get(engine, engine)}", tuple(found[family, engine]))
        for family, engine in keys
    ]


def bands(rows: Sequence[Mapping[str, Any]]) -> list[Band]:
    """Predictions and intervals of the scored numbers, as shares of the published value."""
    return [
        Band(one["predicted"] / one["value"], low / one["value"], high / one["value"])
        for one in rows
        if one["status"] == "scored" and one["predicted"] is not None and one["value"]
        for low, high in [one.get("interval_80") or (None, None)]
        if low is not None
    ]


def summary_table(summary: Mapping[str, Any]) -> Table:
    rows = [_figures("All scored numbers", summary)]
    for group, named in (("metric", FAMILIES), ("engine", ENGINES), ("gpu", {}), ("model", {})):
        for name, figures in summary[f"by_{group}"].items():
            rows.append(_figures(named.get(name, name), figures))
    return Table("Score", _SCORE_COLUMNS, tuple(rows))


def apart_table(summary: Mapping[str, Any]) -> Table:
    """What is summarised and not scored."""
    fit = summary["fit"]
    note = "with that constant left out: median error " + numbers.percent(
        fit["leave_source_out_median_abs_error"]
    )
    rows = [
        _figures("Workload reconstructed from marginals", summary["workload_reconstructed"]),
        _figures("Shares its source with an engine constant", fit, note if fit["predicted"] else ""),
    ]
    return Table("Apart from the score", _SCORE_COLUMNS, tuple(rows))


_SCORE_COLUMNS = (
    Column("Numbers", numeric=False),
    Column("Count"),
    Column("Predicted"),
    Column("Median error"),
    Column("p90 error"),
    Column("Bias"),
)


def _figures(name: str, figures: Mapping[str, Any], note: str = "") -> tuple[Cell, ...]:
    return row(
        Cell(name, note),
        numbers.integer(figures["count"]),
        numbers.percent(figures["coverage"]),
        numbers.percent(figures["median_abs_error"]),
        numbers.percent(figures["p90_abs_error"]),
        numbers.signed_percent(figures["bias"]),
    )


def row_table(caption: str, rows: Sequence[Mapping[str, Any]], families: Sequence[str]) -> Table:
    """Every published number of these families beside its prediction, scored or not."""
    columns = (
        Column("Target", numeric=False),
        Column("Predicted"),
        Column("Published"),
        Column("Error"),
        Column("80 % interval"),
        Column("Counts", numeric=False),
    )
    return Table(caption, columns, tuple(_number_rows(rows, families)), stacked=True)


def _number_rows(rows: Sequence[Mapping[str, Any]], families: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    for one in rows:
        if one["family"] not in families:
            continue
        low, high = one["low"], one["high"]
        spread = "" if low == high else f"{numbers.digits(low)} to {numbers.digits(high)}"
        interval = one.get("interval_80")
        band = Cell(numbers.UNKNOWN)
        if interval is not None:
            holds = interval[0] <= one["value"] <= interval[1]
            text = f"{numbers.digits(interval[0])} to {numbers.digits(interval[1])}"
            band = Cell(text, "holds it" if holds else "misses it")
        error = numbers.UNKNOWN if one["error"] is None else numbers.signed_percent(one["error"])
        yield row(
            Cell(one["target"], _metric(one)),
            numbers.digits(one["predicted"]),
            Cell(numbers.digits(one["value"]), spread),
            "inside" if one["inside"] else error,
            band,
            Cell("scored" if one["status"] == "scored" else one["status"], one.get("reason", "")),
        )


def _metric(one: Mapping[str, Any]) -> str:
    at = one["at"] or {}
    places = " ".join(str(value) for key, value in sorted(at.items()) if key != "context_label")
    return f"{one['metric']} {one['stat']}" + (f" at {places}" if places else "")


def refused_table(refused: Sequence[Mapping[str, Any]]) -> Table:
    rows = tuple(row(one["target"], one["reason"]) for one in refused)
    return Table("Refused", text_columns("Target", "Reason"), rows)


def assumed_table(targets: Mapping[str, Mapping[str, Any]]) -> Table:
    """What sources do not state, and where a run left the tables: one line each, with its targets."""
    by_text: dict[str, list[str]] = {}
    for name, found in targets.items():
        for text in (*found["assumed"], *(f"outside the tables: {text}" for text in found["outside_domain"])):
            by_text.setdefault(text, []).append(name)
    rows = tuple(row(text, ", ".join(names)) for text, names in sorted(by_text.items()))
    return Table("Assumed, because the source does not state it", text_columns("Assumption", "Targets"), rows)
