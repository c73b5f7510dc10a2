"""The steady window beside the whole run: how much warm-up and drain change the picture."""

from __future__ import annotations

from v4reports import numbers
from v4reports.run import Dist, Metrics, Run
from v4reports.sections.base import Section, typeset
from v4reports.tables import Cell, Column, Table, row, text_columns


def build(run: Run) -> Section:
    return Section(
        "window", "Steady window and whole run", _lead(run), (), (window_table(run), calls_table(run))
    )


def comparison_rows(metrics: Metrics) -> list[tuple[str, str, float | None, str]]:
    """(name, how to show it, value, unit kind) of the quantities that two views are compared by."""
    ttft = metrics.ttft_ms

    def p95(dist: Dist | None) -> float | None:
        return None if dist is None else dist.p95

    return [
        ("TTFT, all calls, p95", "lower", p95(ttft.get("all")), "ms"),
        ("TTFT, resume after tool, p95", "lower", p95(ttft.get("resume_tool")), "ms"),
        ("TTFT, cold start, p95", "lower", p95(ttft.get("cold")), "ms"),
        ("ITL divided, p95", "lower", p95(metrics.itl_ms), "ms"),
        ("ITL bursts, p95", "lower", p95(metrics.itl_burst_ms), "ms"),
        ("TPOT, p95", "lower", p95(metrics.tpot_ms), "ms"),
        ("In queue, p95", "lower", p95(metrics.queue_ms), "ms"),
        ("Output tokens per second", "higher", metrics.throughput.get("output_tokens_per_s"), "count"),
        ("Calls per second", "higher", metrics.throughput.get("requests_per_s"), "count"),
        ("Hit ratio", "higher", metrics.hit.get("token_ratio"), "ratio"),
        ("Tasks per hour", "higher", metrics.tasks.get("per_hour"), "count"),
        ("Cost per task, amortised", "lower", metrics.cost.get("amortised_per_task"), "dollars"),
        ("Cost per task, attributed", "lower", metrics.cost.get("attributed_per_task"), "dollars"),
        ("Cost per successful task", "lower", metrics.cost.get("per_successful_task"), "dollars"),
        ("Idle capacity", "lower", metrics.cost.get("idle_share"), "ratio"),
    ]


def shown(value: float | None, kind: str) -> str:
    """A value in the way of its kind."""
    if kind == "ms":
        return numbers.ms(value)
    if kind == "ratio":
        return numbers.percent(value)
    return numbers.dollars(value) if kind == "dollars" else numbers.scaled(value)


def window_table(run: Run) -> Table:
    pairs = zip(comparison_rows(run.steady), comparison_rows(run.full), strict=True)
    rows = [
        row(name, shown(steady, kind), shown(full, kind))
        for (name, _, steady, kind), (_, _, full, _) in pairs
        if steady is not None or full is not None
    ]
    columns = (Column("Quantity", numeric=False), Column("Steady window"), Column("Whole run"))
    return Table("Steady window and whole run", columns, tuple(rows))


def calls_table(run: Run) -> Table:
    outcomes = ("injected", "completed", "rejected", "aborted", "running", "loading", "queued")
    rows = [
        row(
            Cell(outcome.capitalize()),
            numbers.integer(run.steady.calls.get(outcome)),
            numbers.integer(run.full.calls.get(outcome)),
        )
        for outcome in outcomes
        if outcome in run.steady.calls or outcome in run.full.calls
    ]
    columns = (*text_columns("Calls"), Column("Steady window"), Column("Whole run"))
    return Table("What became of the calls", columns, tuple(rows))


def _lead(run: Run) -> str:
    if run.window_s is None:
        return "The run declares no steady window; the figures above cover all of it."
    start, end = run.window_s
    first, last = numbers.seconds_like(start, end), numbers.seconds_like(end, end)
    text = f"The window runs from {first} to {last} of simulated time"
    return text + (f": {typeset(run.window_rule)}." if run.window_rule else ".")
