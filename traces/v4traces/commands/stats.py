"""`v4traces stats`: counts, quantiles and hit bounds of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from v4traces.stats import Distribution, TraceStats
    from v4traces.table import TraceTable

_COLUMNS = ("p10", "p50", "p75", "p90", "p95", "p99")


def stats(
    trace: Annotated[Path, typer.Argument(help="Trace to describe (.parquet).")],
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Describe a trace: calls, sessions, sizes, pauses, and what an infinite cache could serve."""
    from v4traces.check import check_trace
    from v4traces.commands.talk import say
    from v4traces.read import read_table
    from v4traces.stats import trace_stats

    table = read_table(trace)
    result = trace_stats(table)
    if as_json:
        import json

        facts = {
            "trace": table.path,
            "sha256": table.sha256,
            "metadata": json.loads(table.metadata.to_json()),
        }
        print(json.dumps({**facts, **result.to_dict()}, indent=1))
    else:
        _show(table, result)
    for finding in check_trace(table):
        say(f"{finding.severity}: {finding.message}")


def _show(table: TraceTable, result: TraceStats) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 110, highlight=False)
    facts = Table(title=table.path, box=box.SIMPLE, show_header=False, title_justify="left")
    for name, value in _facts(table, result):
        facts.add_row(name, value)
    console.print(facts)
    sizes = Table(box=box.SIMPLE, title="Distributions", title_justify="left")
    sizes.add_column("quantity", no_wrap=True)
    for column in ("count", *_COLUMNS, "mean", "max"):
        sizes.add_column(column, justify="right")
    for name, one in result.distributions.items():
        if one.count:
            sizes.add_row(name, *_cells(one))
    console.print(sizes)


def _facts(table: TraceTable, result: TraceStats) -> Iterator[tuple[str, str]]:
    bounds, meta = result.hit_bounds, table.metadata
    yield "source", f"{meta.source_format}, {meta.trace_class}"
    blocks = f"in blocks of {meta.block_tokens} tokens, short by up to {meta.prefix_error_tokens}"
    yield "shared lengths", blocks if meta.block_tokens else "in tokens"
    yield "calls", f"{result.calls:,} ({', '.join(f'{k} {v:,}' for k, v in result.triggers.items())})"
    yield "sessions", f"{result.sessions:,}, of them sub-agents {result.sub_agents:,}; tasks {result.tasks:,}"
    yield "continue another session", f"{result.continuing_sessions:,} sessions"
    yield "wait for several calls", f"{result.joins:,} calls"
    yield "tokens", f"prompt {result.prompt_tokens:,}, output {result.output_tokens:,}"
    if result.models:
        yield "models", ", ".join(f"{name} {count:,}" for name, count in result.models.items())
    yield "diverge from the call before", f"{result.diverging_share:.2%} of calls"
    yield "less than half of the call before", f"{result.compacted_share:.2%} of calls"
    yield "infinite cache, own session", f"{bounds.own_session:.2%} of prompt tokens"
    yield "infinite cache, own task", f"{bounds.own_task:.2%} of prompt tokens"
    yield "infinite cache, whole trace", f"{bounds.whole_trace:.2%} of prompt tokens"
    yield "top 2 % of calls", f"{bounds.missed_by_top_2_percent:.1%} of the tokens that miss"


def _cells(one: Distribution) -> list[str]:
    values = [*(one.quantiles[column] for column in _COLUMNS), one.mean, one.max]
    return [_number(one.count), *(_number(value) for value in values)]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.4g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.4g}k"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
