"""The first thing a run says: one sentence, one number, what limits, what to try next.

Deterministic: the same figures give the same words. The number is the amortised cost of a task where one
ended in the window, otherwise the p95 time to first token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from v4sim.metrics.limits import limits

if TYPE_CHECKING:
    from v4sim.config import Deployment

SHOWN_LIMITS = 3


def headline(metrics: Mapping[str, Any], deployment: Deployment, sessions: float | None) -> dict[str, Any]:
    """The `headline` entry, from the METRICS of the steady window and the sessions alive in it on average."""
    found = limits(metrics)[:SHOWN_LIMITS]
    entry: dict[str, Any] = {
        "sentence": _sentence(metrics, deployment, sessions),
        "number": None,
        "unit": "",
        "what_limits": [limit.says for limit in found],
        "try_next": [limit.try_next for limit in found],
        "limits": [{"name": limit.name, "share": limit.share} for limit in found],
    }
    cost = metrics["cost"].get("amortised_per_task")
    if cost is not None:
        entry["number"], entry["unit"] = cost, "$ per task"
    elif metrics["ttft_ms"]["all"]["count"]:
        entry["number"], entry["unit"] = metrics["ttft_ms"]["all"]["p95"] / 1e3, "s to first token, p95"
    return entry


def _sentence(metrics: Mapping[str, Any], deployment: Deployment, sessions: float | None) -> str:
    where = f"{deployment.hardware.num_gpus} {deployment.hardware.gpu.upper()} with {_model(deployment)}"
    ttft = metrics["ttft_ms"]["all"]
    if not ttft["count"]:
        return f"No call got a first token on {where}."
    load = f"{_rate(metrics)} calls/s"
    if sessions is not None and sessions > 0.0:
        load = f"{sessions:.3g} sessions at a time ({load})"
    sentence = f"{load} on {where}: 95 % of calls see a first token within {_time(ttft['p95'])}"
    if metrics["tpot_ms"]["count"]:
        # Per call, stalls included: the median gap would hide them.
        sentence += f", then a token every {_time(metrics['tpot_ms']['p50'])} (median TPOT)"
    itl = metrics["itl_burst_ms" if deployment.objective.itl_form == "burst" else "itl_ms"]
    cost = metrics["cost"].get("amortised_per_task")
    if cost is not None:
        sentence += f", and a task costs ${cost:,.3g}"
    return f"{sentence}; {_objective(deployment, ttft, itl)}."


def _objective(deployment: Deployment, ttft: Mapping[str, Any], itl: Mapping[str, Any]) -> str:
    objective = deployment.objective
    missed = []
    if ttft["p95"] > objective.ttft_p95_s * 1e3:
        missed.append(f"the {objective.ttft_p95_s:g} s to first token")
    if itl["count"] and itl["p95"] > objective.itl_p95_ms:
        form = "between bursts" if objective.itl_form == "burst" else "between tokens"
        missed.append(f"the {objective.itl_p95_ms:g} ms {form} (p95 ITL)")
    return f"it misses {' and '.join(missed)} of its objective" if missed else "it meets its objective"


def _model(deployment: Deployment) -> str:
    return "-".join(part.capitalize() for part in deployment.model.name.split("-"))


def _rate(metrics: Mapping[str, Any]) -> str:
    return f"{metrics['throughput'].get('requests_per_s', 0.0):.3g}"


def _time(ms: float) -> str:
    """Three digits in milliseconds or seconds."""
    return f"{ms:.3g} ms" if ms < 1000.0 else f"{ms / 1000.0:,.3g} s"
