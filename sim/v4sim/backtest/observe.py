"""A metric's name and statistic, read out of runs.

Times of one call: TTFT from sending to the first token; TPOT = (last - first) / (tokens - 1); turn wall =
TTFT + N x TPOT. A rate is counted tokens over the time from the first sending to the last token, for a
workload that was cut over its middle, where the load is full. Capacity is what the start-up log words.

Percentiles interpolate linearly, as numpy and the engines' own benchmarks do. For repetitions of a few equal
requests the sample at floor(q x n) is taken: their published percentiles are whole multiples of one prefill
(median of eight in a row = 5/8 of the p95, in all three contexts of TP8), which interpolation would not give.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4sim.backtest.workload import Load
from v4sim.capacity import RankPools
from v4sim.config import Deployment
from v4sim.errors import ConfigError
from v4sim.results import RunResult

Floats = NDArray[np.float64]
NS_PER_MS, NS_PER_S = 1e6, 1e9
_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)")
_RATIO = re.compile(r"(.+)_ratio_(\d+(?:\.\d+)?[kKmM]?)_over_(\d+(?:\.\d+)?[kKmM]?)")
_WALL = re.compile(r"turn_wall_(\d+)tok_ms")
_CONCURRENCY = re.compile(r"max_concurrency_(\d+[kKmM]?)")
FAMILIES = ("ttft", "tpot", "throughput", "capacity", "turn", "ratio")


@dataclass(frozen=True, slots=True)
class Seen:
    """The runs of one sub-point with one seed: the repetitions of its load. No load: a start-up alone."""

    load: Load | None
    results: tuple[RunResult, ...]
    deployment: Deployment
    pools: RankPools


def family_of(name: str) -> str | None:
    """Which kind of quantity a metric is; None for one that nothing here can predict."""
    if ratio := _RATIO.fullmatch(name):
        return "ratio" if _per_call(ratio[1]) else None
    if _WALL.fullmatch(name) or name in ("e2e_ms", "e2el_ms"):
        return "turn"
    if name.startswith("ttft"):
        return "ttft" if _per_call(name) else None
    if _per_call(name) or name == "verify_step_ms":
        return "tpot"
    if _rate(name):
        return "throughput"
    if name.startswith("kv_tokens_per_") or _CONCURRENCY.fullmatch(name):
        return "capacity"
    return None


def observe(name: str, stat: str, seen: Seen) -> float:
    """The predicted value of a metric at one sub-point and seed, in the metric's unit."""
    family = family_of(name)
    if family == "capacity":
        return capacity(name, seen.pools, seen.deployment)
    load = seen.load
    if load is None:
        raise ConfigError(f"metric {name!r}: the workload sends nothing (concurrency or num_requests is 0).")
    if name == "verify_step_ms":
        total = sum(int(r.steps.parts_ns["decode"].sum()) for r in seen.results)
        return total / max(sum(r.steps.counts["decode"] for r in seen.results), 1) / NS_PER_MS
    rate = _rate(name)
    if rate is not None:
        return float(np.mean([rate(result, load, seen.deployment) for result in seen.results]))
    values = _per_call(name)
    if values is None:
        raise ConfigError(f"metric {name!r}: nothing here predicts it.")
    found = np.concatenate([values(_counted(result, load)) for result in seen.results])
    found = found[np.isfinite(found)]
    if not found.size:
        raise ConfigError(
            f"metric {name!r}: no call of the run has it (too few output tokens, or none ended)."
        )
    return statistic(found, stat, load.together)


def statistic(values: Floats, stat: str, together: bool = False) -> float:
    """`stat` of the values of single calls."""
    if stat in ("mean", "avg", "average", "ratio"):
        return float(values.mean())
    if stat in ("median", "min-max"):
        stat = "p50"
    if stat in ("min", "max"):
        return float(values.min() if stat == "min" else values.max())
    if stat == "std":
        return float(values.std())
    match = _PERCENTILE.fullmatch(stat)
    if match is None or not 0 <= float(match[1]) <= 100:
        raise ConfigError(f"statistic {stat!r}: known are mean, median, min, max, std and pN.")
    share = float(match[1]) / 100
    if together:
        return float(np.sort(values)[min(int(share * values.size), values.size - 1)])
    return float(np.quantile(values, share))


def ratio_points(name: str) -> tuple[str, float, float] | None:
    """(metric, context of the numerator, of the denominator) of a `..._ratio_A_over_B`."""
    match = _RATIO.fullmatch(name)
    return (match[1], size_of(match[2]), size_of(match[3])) if match else None


def size_of(text: str) -> float:
    """`900k`, `4k`, `1m` as a number: thousands and millions."""
    unit = {"k": 1e3, "m": 1e6}.get(text[-1].lower())
    return float(text[:-1]) * unit if unit else float(text)


def capacity(name: str, pools: RankPools, deployment: Deployment) -> float:
    """Tokens of KV cache as the start-up log words them, or how many of the longest requests fit."""
    rank = float(pools.reported_tokens)
    replica = rank * deployment.parallel.attention_dp
    found = {
        "kv_tokens_per_rank": rank,
        "kv_tokens_per_replica": replica,
        "kv_tokens_per_gpu": replica / deployment.gpus_per_replica,
    }.get(name)
    if found is not None:
        return found
    match = _CONCURRENCY.fullmatch(name)
    if match is None:
        raise ConfigError(f"metric {name!r}: known capacities are kv_tokens_per_rank, _replica and _gpu.")
    length = size_of(match[1])
    # Binary sizes are meant: 1m is the model's 1,048,576 tokens.
    return replica / (length * 1.048576 if length >= 1e6 else length * 1.024 if length >= 1e3 else length)


def _counted(result: RunResult, load: Load) -> dict[str, Any]:
    """The columns of the completed calls that count."""
    calls = {name: np.asarray(column) for name, column in result.calls.items()}
    keep = (calls["done"] == "completed") & (calls["turn"] >= load.first_turn)
    return {name: column[keep] for name, column in calls.items()}


def _ttft(calls: dict[str, Any]) -> Floats:
    return np.asarray((calls["first_seen_ns"] - calls["sent_ns"]) / NS_PER_MS)


def _tpot(calls: dict[str, Any]) -> Floats:
    gaps = calls["output_tokens"] - 1
    spent = np.maximum(calls["last_token_ns"] - calls["first_seen_ns"], 0) / NS_PER_MS
    found: Floats = np.divide(spent, gaps, out=np.full(len(gaps), np.nan), where=gaps > 0)
    return found


def _e2e(calls: dict[str, Any]) -> Floats:
    return np.asarray((calls["last_token_ns"] - calls["sent_ns"]) / NS_PER_MS)


def _per_call(name: str) -> Callable[[dict[str, Any]], Floats] | None:
    """Values of single calls under this name."""
    wall = _WALL.fullmatch(name)
    if wall is not None:
        tokens = int(wall[1])
        return lambda calls: np.asarray(_ttft(calls) + tokens * _tpot(calls))
    if name in ("ttft_ms", "ttft_ms_observed_range", "ttfvt_ms"):
        return _ttft
    if name in ("ttft_s", "tpot_s", "e2e_s"):
        inner = _per_call(f"{name[:-2]}_ms")
        assert inner is not None
        return lambda calls: np.asarray(inner(calls) / 1000.0)
    if name in ("tpot_ms", "itl_ms"):
        return _tpot
    if name in ("e2e_ms", "e2el_ms"):
        return _e2e
    if name in ("decode_tok_s", "user_tok_s", "output_tok_s_per_user"):
        return lambda calls: np.asarray(1000.0 / _tpot(calls))
    return None


def _rate(name: str) -> Callable[[RunResult, Load, Deployment], float] | None:
    """Aggregate rates: (output|total|input)_tok_s, requests_s, each also per GPU."""
    base = name.removesuffix("_per_gpu")
    columns: dict[str, Sequence[str]] = {
        "output_tok_s": ("output_tokens",),
        "input_tok_s": ("prompt_tokens",),
        "total_tok_s": ("prompt_tokens", "output_tokens"),
        "requests_s": (),
        "request_throughput": (),
    }
    if base not in columns:
        return None
    names = columns[base]

    def rate(result: RunResult, load: Load, deployment: Deployment) -> float:
        calls = _counted(result, load)
        if not len(calls["row"]):
            raise ConfigError(f"metric {name!r}: no call of the run ended.")
        begin, end = int(calls["sent_ns"].min()), int(calls["last_token_ns"].max())
        weight = np.ones(len(calls["row"]))
        if load.cut:
            # From the end of the first wave to the last start: before and after, fewer are alive.
            alive = load.options.sessions or 1
            sent = np.sort(calls["sent_ns"])
            begin, end = int(sent[min(alive, len(sent) - 1)]), int(sent[-1])
            span = np.maximum(calls["last_token_ns"] - calls["sent_ns"], 1)
            inside = np.minimum(calls["last_token_ns"], end) - np.maximum(calls["sent_ns"], begin)
            weight = np.clip(inside / span, 0.0, 1.0)
        amount = (
            sum((calls[column] for column in names), np.zeros(len(weight))) if names else np.ones(len(weight))
        )
        value = float((amount * weight).sum()) * NS_PER_S / max(end - begin, 1)
        return value / deployment.hardware.num_gpus if name.endswith("_per_gpu") else value

    return rate
