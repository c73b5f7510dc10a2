"""The document of a backtest by hand: schema 1, as `v4sim backtest --json` writes it."""

from __future__ import annotations

import random
from typing import Any

FAMILIES = {
    "ttft_ms": "ttft",
    "tpot_ms": "tpot",
    "total_tok_s_per_gpu": "throughput",
    "kv_tokens_per_replica": "capacity",
}


def row(target: str, metric: str, predicted: float | None, value: float, **changes: Any) -> dict[str, Any]:
    error = None if predicted is None else predicted / value - 1
    found = {
        "target": target,
        "engine": "vllm",
        "gpu": "b200",
        "model": "v4-flash",
        "metric": metric,
        "stat": "p50",
        "at": None,
        "unit": "ms",
        "family": FAMILIES[metric],
        "status": "scored" if predicted is not None else "refused",
        "predicted": predicted,
        "by_seed": [predicted],
        "value": value,
        "low": value,
        "high": value,
        "error": error,
        "error_from_value": error,
        "inside": None if error is None else error == 0,
    }
    return found | changes


def figures(count: int, predicted: int, error: float | None) -> dict[str, Any]:
    return {
        "count": count,
        "predicted": predicted,
        "coverage": predicted / count if count else None,
        "inside": 0,
        "median_abs_error": error,
        "p90_abs_error": error,
        "bias": error,
    }


def document(rows: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A document with these rows; its summary is of no consequence for what rows show."""
    one = figures(len(rows), len(rows), 0.125)
    groups = {"by_metric": {"ttft": one}, "by_engine": {"vllm": one}, "by_gpu": {"b200": one}}
    found = {
        "schema_version": 1,
        "targets_file": "mine.json",
        "seeds": 3,
        "summary": one
        | groups
        | {
            "by_model": {"v4-flash": one},
            "targets": {"total": 3, "run": 2, "refused": 1},
            "workload_reconstructed": figures(0, 0, None),
            "fit": figures(2, 2, 0.05) | {"leave_source_out_median_abs_error": 0.5},
        },
        "rows": rows,
        "refused": [{"target": "no-topology", "reason": "the topology is not stated."}],
        "targets": {"one": {"assumed": ["ep 1"], "outside_domain": []}},
    }
    return found | changes


def many(count: int = 60) -> dict[str, Any]:
    """As many rows as the project's own file, with intervals, long names and long reasons."""
    luck = random.Random(5)
    rows = []
    for number in range(count):
        metric = list(FAMILIES)[number % 4]
        predicted = 1000 * luck.lognormvariate(0, 0.3)
        rows.append(
            row(
                f"SGL-b200-flash-fp4-bal-c{number}-{'x' * (number % 7 * 6)}",
                metric,
                None if number == 7 else predicted,
                1000.0,
                engine=("sglang", "vllm")[number % 2],
                at={"context_tokens_nominal": 1_048_576} if number % 5 == 0 else None,
                low=950.0,
                interval_80=[predicted * 0.85, predicted * 1.2],
                reason="nothing here predicts it: " + "why " * 30 if number == 7 else "",
            )
        )
    found = document(rows)
    found["summary"]["intervals_80"] = {
        "count": count,
        "inside": 0.62,
        "median_relative_width": 0.28,
        "median_interval_score": 0.34,
    }
    found["refused"].append({"target": "t" * 90, "reason": "r" * 300})
    found["targets"]["long"] = {"assumed": ["a" * 200], "outside_domain": ["decode batch x context " * 5]}
    return found
