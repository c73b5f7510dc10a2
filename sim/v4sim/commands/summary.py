"""A run in a few lines for the terminal: the answer, the latencies, the tokens, the cost, what limits.

It reads the object of `result.json` and nothing else, so that what is printed and what is written cannot
differ. The numbers are of the steady window; the report has the whole run and everything left out here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

WIDTH = 100
LATENCIES = (
    ("ttft_ms", "time to first token"),
    ("itl_burst_ms", "between bursts"),
    ("tpot_ms", "per output token"),
    ("e2e_ms", "whole call"),
    ("queue_ms", "in queue"),
)
UNFINISHED = ("rejected", "aborted", "running", "loading", "queued")
PERCENTILES = ("p50", "p90", "p95", "p99")


def summary(result: Mapping[str, Any]) -> str:
    """Text of several lines without a line end after the last."""
    steady = result["steady"]
    lines = [textwrap.fill(result["headline"]["sentence"], WIDTH), ""]
    latencies = list(_latency_rows(steady))
    if latencies:
        lines += [_latency_head(), *latencies, ""]
    lines += [_hanging(name, text) for name, text in (*_facts(result, steady), *_advice(result))]
    return "\n".join(lines)


def served_no_call(result: Mapping[str, Any]) -> bool:
    """The deployment gave no answer at all to a workload that asked for some."""
    calls = result["full"]["calls"]
    return bool(calls["injected"]) and not calls["completed"]


def duration(ms: float) -> str:
    """A time a person reads at a glance: three digits, in the unit that fits."""
    if ms < 1000.0:
        return f"{ms:.3g} ms"
    seconds = ms / 1000.0
    return f"{seconds:.3g} s" if seconds < 1000.0 else f"{seconds / 60.0:,.0f} min"


def _latency_head() -> str:
    return f"{'':<26}{'count':>10}" + "".join(f"{name:>11}" for name in PERCENTILES)


def _latency_rows(metrics: Mapping[str, Any]) -> Iterator[str]:
    for key, label in LATENCIES:
        found = metrics[key]
        if key != "ttft_ms":
            yield from _latency_row(label, found)
            continue
        yield from _latency_row(label, found["all"])
        for event_class, values in found.items():
            if event_class != "all":
                yield from _latency_row(f"  {event_class.replace('_', ' ')}", values)


def _latency_row(label: str, values: Mapping[str, Any] | None) -> Iterator[str]:
    if values and values["count"]:
        cells = "".join(f"{duration(values[name]):>11}" for name in PERCENTILES)
        yield f"{label:<26}{values['count']:>10,}{cells}"


def _facts(result: Mapping[str, Any], steady: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What cannot be said (no call was admitted, no task ended) is left out, as in `result.json`."""
    window, calls = result["window"], result["full"]["calls"]
    yield "window", f"{window['start_s']:,.0f} s to {window['end_s']:,.0f} s: {window['rule']}"
    left = [f"{calls[name]:,} {name}" for name in UNFINISHED if calls.get(name)]
    yield "calls", ", ".join([f"{calls['completed']:,} of {calls['injected']:,} completed", *left])
    rates = steady["throughput"]
    if rates:
        yield (
            "throughput",
            f"{rates['output_tokens_per_s']:,.0f} output tokens/s "
            f"({rates['output_tokens_per_s_per_gpu']:,.1f} per GPU), {rates['requests_per_s']:.3g} calls/s",
        )
    hit = steady["hit"]
    if "token_ratio" in hit:
        # Outputs that return are hits, but in no bound.
        most = (
            "at most" if hit["token_ratio"] <= hit["bound_ratio"] else "without outputs that return, at most"
        )
        yield "cache hits", f"{hit['token_ratio']:.1%} of prompt tokens ({most} {hit['bound_ratio']:.1%})"
    cost = steady["cost"]
    if "amortised_per_task" in cost:
        yield (
            "cost",
            f"${cost['amortised_per_task']:.3g} per task at ${cost['price_per_gpu_hour']:g} per GPU-hour, "
            f"{cost['idle_share']:.0%} of it idle",
        )
    waits = sorted(steady["blocked"].items(), key=lambda item: (-item[1]["time_s"], item[0]))
    said = [
        f"{reason} ({found['calls']:,} calls, {found['time_s']:,.0f} s)"
        for reason, found in waits
        if found["calls"]
    ]
    if said:
        yield "waited for", ", ".join(said)


def _advice(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What limits with what to try against it, and where the profile was left."""
    headline = result["headline"]
    for limit, remedy in zip(headline["what_limits"], headline["try_next"], strict=True):
        yield "limit", limit
        yield "  try", remedy
    for warning in result["domain_warnings"]:
        yield "outside", warning


def _hanging(name: str, text: str) -> str:
    indent = " " * 12
    return textwrap.fill(text, WIDTH, initial_indent=f"{name:<12}", subsequent_indent=indent)
