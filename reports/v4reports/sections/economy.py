"""Throughput and money: work per second, cost of a task, dollars per million tokens."""

from __future__ import annotations

from dataclasses import replace

from v4reports import numbers
from v4reports.run import Dist, Run
from v4reports.sections.base import Section
from v4reports.tables import Cell, Table, distribution_table, value_table


def build(run: Run) -> Section:
    tables = [
        table for table in (throughput_table(run), task_table(run), token_price_table(run)) if table.rows
    ]
    if run.steady.task_e2e_s is not None:
        tables.append(task_time_table(run.steady.task_e2e_s))
    notes = () if "per_successful_task" in run.steady.cost else (_why_no_success_cost(run),)
    return Section("economy", "Throughput and cost", _lead(run), ("load", "cost"), tuple(tables), notes)


def throughput_table(run: Run) -> Table:
    rate = run.steady.throughput.get
    return value_table(
        "Throughput, steady window",
        (
            ("Calls per second", numbers.digits(rate("requests_per_s")), ""),
            ("Output tokens per second", numbers.scaled(rate("output_tokens_per_s")), ""),
            ("… per GPU", numbers.scaled(rate("output_tokens_per_s_per_gpu")), ""),
            ("… in the busiest second", numbers.scaled(rate("peak_output_tokens_per_s")), ""),
            (
                "All tokens per second",
                numbers.scaled(rate("total_tokens_per_s")),
                "prompt, cached too, and output",
            ),
            ("… per GPU", numbers.scaled(rate("total_tokens_per_s_per_gpu")), ""),
        ),
    )


def task_table(run: Run) -> Table:
    tasks, cost = run.steady.tasks.get, run.steady.cost.get
    low, high, price = cost("low"), cost("high"), cost("price_per_gpu_hour")
    band = ""
    amortised = cost("amortised_per_task")
    if amortised is not None and price and low is not None and high is not None:
        cheap, dear = amortised * low / price, amortised * high / price
        band = f"{numbers.dollars(cheap)} to {numbers.dollars(dear)} over the price band"
    return value_table(
        "Tasks, steady window",
        (
            ("Tasks completed", numbers.integer(tasks("completed")), "every call of the task completed"),
            ("Tasks successful", numbers.integer(tasks("successful")), "as the trace says"),
            ("Tasks per hour", numbers.digits(tasks("per_hour")), ""),
            (
                "GPU-seconds per task",
                numbers.digits(tasks("gpu_seconds_per_task")),
                "shares of step time of its calls",
            ),
            ("Cache per task", numbers.size(tasks("cache_bytes_per_task")), "peak KV of its sessions"),
            ("Price of a GPU-hour", numbers.dollars(price), "as configured"),
            (
                "Cost per task, amortised",
                numbers.dollars(amortised),
                f"all GPU-hours ÷ tasks{'; ' + band if band else ''}",
            ),
            (
                "Cost per task, attributed",
                numbers.dollars(cost("attributed_per_task")),
                _attributed(run),
            ),
            (
                "Cost per successful task",
                numbers.dollars(cost("per_successful_task")),
                "amortised ÷ successful tasks",
            ),
            ("Idle capacity", numbers.percent(cost("idle_share")), "share of the GPU-hours in no step"),
        ),
    )


def token_price_table(run: Run) -> Table:
    cost = run.steady.cost.get
    return value_table(
        "Cost of a million tokens, steady window",
        (
            ("Input, computed", numbers.dollars(cost("per_million_input")), ""),
            ("Input, cached", numbers.dollars(cost("per_million_cached")), ""),
            ("Output", numbers.dollars(cost("per_million_output")), ""),
        ),
        heads=("Tokens", "$ per million"),
    )


def task_time_table(dist: Dist) -> Table:
    """`dist` in seconds."""
    names = ("mean", "min", "max", "p50", "p90", "p95", "p99")
    in_ms = replace(dist, **{name: getattr(dist, name) * 1e3 for name in names}, p50_ci=None, p95_ci=None)
    return distribution_table(
        "Time of whole tasks, steady window",
        [(Cell("Task", "first call sent to last token; tools and people included"), in_ms)],
        first="Quantity",
    )


def _why_no_success_cost(run: Run) -> str:
    successful = run.steady.tasks.get("successful")
    if successful is None:
        return "Cost per successful task is not known: the trace does not say which tasks succeeded."
    return "No task of the steady window succeeded, so there is no cost per successful task."


def _attributed(run: Run) -> str:
    low, high = (run.steady.cost.get(f"attributed_per_task_ci_{end}") for end in ("low", "high"))
    text = "by share of step time; idle apart"
    if low is None or high is None:
        return text
    return f"{text}; 80 % interval {numbers.dollars(low)} to {numbers.dollars(high)}"


def _lead(run: Run) -> str:
    rate, cost = run.steady.throughput.get("output_tokens_per_s"), run.steady.cost
    text = "" if rate is None else f"{numbers.scaled(rate)} output tokens per second in the steady window. "
    amortised, idle = cost.get("amortised_per_task"), cost.get("idle_share")
    if amortised is None:
        return text + "No task was completed in it, so there is no cost per task."
    text += f"A task costs {numbers.dollars(amortised)}"
    return text + (f", {numbers.percent(idle)} of it for idle capacity." if idle is not None else ".")
