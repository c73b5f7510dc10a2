"""What a task costs, and what a token costs.

Two answers that differ by idle capacity. *Amortised*: GPU-hours of the window times the price, over the
tasks done in it: what the bill says. *Attributed*: the step time that a task's own calls took, times the
price: what it would cost on GPUs that never idle. `idle_share` is the part of GPU time in which nothing
ran. Tasks done in a window are `tasks.equivalent`: see `tasks`.

Token prices split the amortised cost of the window without remainder over three kinds of token: prompt
tokens computed, prompt tokens served from cache, output tokens. Prefill steps pay for prompts, decode
steps for output, mixed steps for both by the tokens they carry; of the prompts' part, cached tokens pay
what is spent on fetching them (`h2d`). Keeping them in memory is not priced apart: it is in the amortised
cost of everything.

Leaves out: power, network, storage, people. Prices: `hardware.price_per_gpu_hour` with its band, from the
presets.
Units: dollars; nanoseconds in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from v4sim.cost.base import PART_INDEX
from v4sim.metrics.bootstrap import SessionBootstrap
from v4sim.metrics.calls import Calls
from v4sim.metrics.epochs import EngineTotals
from v4sim.metrics.tasks import Tasks, work_shares
from v4sim.metrics.window import Window

NS_PER_HOUR = 3.6e12
PER_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per GPU-hour and the band in which offers lie; None where the deployment names none."""

    per_gpu_hour: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class StepSplit:
    """Shares of step time that prompts, cached prompt tokens and outputs take; they sum to 1."""

    prompt: float
    cached: float
    output: float


def cost_entry(
    calls: Calls,
    tasks: Tasks,
    window: Window,
    price: Price,
    gpus: int,
    gpus_per_replica: int,
    tokens: Mapping[str, int],
    split: StepSplit | None,
    idle_share: float | None,
    bootstrap: SessionBootstrap | None,
) -> dict[str, Any]:
    """The `cost` entry. What cannot be said (no task ended, success unknown) is absent."""
    entry: dict[str, Any] = {"price_per_gpu_hour": price.per_gpu_hour}
    entry |= {name: at for name, at in (("low", price.low), ("high", price.high)) if at is not None}
    if idle_share is not None:
        entry["idle_share"] = idle_share
    if window.length_ns <= 0:
        return entry
    bill = window.length_ns / NS_PER_HOUR * gpus * price.per_gpu_hour
    entry["window_cost"] = bill
    entry |= _per_task(
        calls, tasks, window, bill, price.per_gpu_hour * gpus_per_replica / NS_PER_HOUR, bootstrap
    )
    return entry | _per_token(bill, tokens, split)


def step_split(totals: EngineTotals) -> StepSplit | None:
    """Who pays for the steps of a stretch of time; None if there were none."""
    prefill, decode, mixed = (totals.steps.parts_ns[kind] for kind in ("prefill", "decode", "mixed"))
    total = totals.steps.total_ns
    if not total:
        return None
    prompt_tokens, rows = totals.mixed_tokens
    to_prompts = prompt_tokens / (prompt_tokens + rows) if prompt_tokens + rows else 0.5
    prompt = int(prefill.sum()) + to_prompts * int(mixed.sum())
    h2d = PART_INDEX["h2d"]
    cached = int(prefill[h2d]) + to_prompts * int(mixed[h2d])
    output = int(decode.sum()) + (1.0 - to_prompts) * int(mixed.sum())
    return StepSplit((prompt - cached) / total, cached / total, output / total)


def _per_task(
    calls: Calls,
    tasks: Tasks,
    window: Window,
    bill: float,
    dollars_per_ns: float,
    bootstrap: SessionBootstrap | None,
) -> dict[str, Any]:
    done = work_shares(tasks, calls, window)
    if done.sum() <= 0.0:
        return {}
    spent = tasks.gpu_share_ns * dollars_per_ns * done
    entry: dict[str, Any] = {
        "amortised_per_task": bill / float(done.sum()),
        "attributed_per_task": float(spent.sum() / done.sum()),
    }
    if bootstrap is not None:
        # A task's values stand at its first call, so that the calls' groups can be used.
        first_call = np.unique(tasks.of_call, return_index=True)[1]
        at_call = np.zeros((3, len(calls)))
        at_call[:, first_call] = spent, done, np.ones(len(tasks))
        for name, (part, over), scale in (
            ("attributed_per_task", (0, 1), 1.0),
            # More or fewer tasks done at the same bill.
            ("amortised_per_task", (2, 1), bill / len(tasks)),
        ):
            interval = bootstrap.ratio(at_call[part], at_call[over])
            if interval is not None:
                entry[f"{name}_ci_low"], entry[f"{name}_ci_high"] = (scale * bound for bound in interval)
    counted = done > 0.0
    if (tasks.success[counted] >= 0).all():
        successful = float(done[tasks.success == 1].sum())
        if successful > 0.0:
            entry["per_successful_task"] = bill / successful
    return entry


def _per_token(bill: float, tokens: Mapping[str, int], split: StepSplit | None) -> dict[str, float]:
    """Dollars per million; absent for a kind of token that did not occur."""
    if split is None:
        return {}
    cached = tokens["device"] + tokens["host"] + tokens["storage"]
    kinds = (
        ("per_million_input", split.prompt, tokens["computed"]),
        ("per_million_cached", split.cached, cached),
        ("per_million_output", split.output, tokens["output"]),
    )
    return {name: bill * share / count * PER_MILLION for name, share, count in kinds if count > 0}
