"""What each rank did in the window: `ranks`.

Tokens are those of the rank's calls. A rank's attention time is not measured, since a step lasts as long
as its slowest rank: the replica's attention time is given to the rank that attended to most tokens, and
to the others in proportion. A token attends to every token before it; a verify step reads the context
once, whatever its width.

Leaves out: projections and experts, which follow tokens, not context; calls that never completed.
Units: `_s` seconds, `_tokens` tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4sim.cost.base import PART_INDEX
from v4sim.metrics.calls import Calls
from v4sim.metrics.epochs import EngineTotals
from v4sim.metrics.window import Window
from v4sim.results import RunResult

ATTENTION_PARTS = ("index_scan", "topk", "sparse_attention", "hca", "swa", "compressor", "attention_other")

Floats = NDArray[np.float64]


def attended_tokens(calls: Calls) -> Floats:
    """Per call: pairs of a token and one before it that its prefill and its decode looked at."""
    prompt, output = calls["prompt_tokens"].astype(np.float64), calls["output_tokens"].astype(np.float64)
    new = np.where(calls.admitted, calls["computed_tokens"], 0).astype(np.float64)
    prefill = new * (prompt - new) + new * new / 2.0
    steps = np.where(calls["verify_steps"] > 0, calls["verify_steps"], np.maximum(output - 1.0, 0.0))
    decode = np.where(calls.completed, steps * (prompt + output / 2.0), 0.0)
    return np.asarray(prefill + decode, dtype=np.float64)


def rank_entries(
    calls: Calls, result: RunResult, totals: EngineTotals, window: Window
) -> list[dict[str, Any]]:
    """The `ranks` entry, in order of replica and rank."""
    replicas, ranks = totals.busy_ns.shape
    place = np.where(calls["rank"] >= 0, calls["replica"] * ranks + calls["rank"], -1)

    def per_rank(values: NDArray[Any]) -> Floats:
        served = calls.completed & (place >= 0)
        summed = np.bincount(place[served], weights=values[served], minlength=replicas * ranks)
        return np.asarray(summed.reshape(replicas, ranks), dtype=np.float64)

    while_served = window.share_of(calls["admit_ns"], calls["last_token_ns"])
    while_decoding = window.share_of(calls["first_token_ns"], calls["last_token_ns"])
    attended = per_rank(attended_tokens(calls) * while_served)
    outputs = per_rank(calls["output_tokens"] * while_decoding)
    computed = calls["computed_tokens"] + calls["recomputed_tokens"]
    prompts = per_rank(computed * window.holds(calls["first_token_ns"]).astype(np.float64))
    busiest = np.maximum(attended.max(axis=1, keepdims=True), 1.0)
    attention_s = _attention_ns(totals) / 1e9 / replicas * attended / busiest
    length_s = totals.length_ns / 1e9
    return [
        {
            "replica": rank.replica,
            "rank": rank.rank,
            "busy_s": totals.busy_ns[rank.replica, rank.rank] / 1e9,
            "utilisation": totals.busy_ns[rank.replica, rank.rank] / 1e9 / length_s if length_s > 0 else 0.0,
            "attention_s": attention_s[rank.replica, rank.rank],
            "attended_tokens": attended[rank.replica, rank.rank],
            "decode_tokens": round(float(outputs[rank.replica, rank.rank])),
            "prefill_tokens": round(float(prompts[rank.replica, rank.rank])),
        }
        for rank in result.ranks
    ]


def _attention_ns(totals: EngineTotals) -> int:
    parts = (PART_INDEX[name] for name in ATTENTION_PARTS)
    return sum(int(ns[part]) for part in parts for ns in totals.steps.parts_ns.values())
