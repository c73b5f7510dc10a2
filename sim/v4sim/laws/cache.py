"""Memory: hits, tiers and pools (laws 3, 4 and 5).

Units: tokens (request slots in the pool named `slots`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from v4sim.laws.base import Check, Evidence, broken, whole_run
from v4sim.metrics.calls import Int64s
from v4sim.metrics.pools import FOLLOWED_BY
from v4traces.laws import Finding

if TYPE_CHECKING:
    from v4sim.results import PoolSummary


def pools_within_capacity(evidence: Evidence) -> Iterator[Finding]:
    for pool in evidence.result.pools:
        if not 0 <= pool.peak <= pool.capacity or not 0 <= pool.used_at_end <= pool.capacity:
            yield whole_run(
                "3 pools",
                f"{_pool(pool)} has {pool.capacity}, but reached {pool.peak} and ended at {pool.used_at_end}",
            )


def pools_do_not_leak(evidence: Evidence) -> Iterator[Finding]:
    """When nothing runs any more, everything in use is a cached prefix."""
    calls = evidence.calls
    still = calls.done.equals("running") | calls.done.equals("queued")
    busy = set(zip(calls["replica"][still].tolist(), calls["rank"][still].tolist(), strict=True))
    for pool in evidence.result.pools:
        if (pool.replica, pool.rank) not in busy and pool.used_at_end != pool.resident_at_end:
            yield whole_run(
                "3 pools",
                f"{_pool(pool)} ends with {pool.used_at_end} in use, of which {pool.resident_at_end} are "
                "cached prefixes; nothing runs, so the rest leaked",
            )


def samples_within_capacity(evidence: Evidence) -> Iterator[Finding]:
    result = evidence.result
    column = {(rank.replica, rank.rank): i for i, rank in enumerate(result.ranks)}
    for pool in result.pools:
        used = result.series.get(FOLLOWED_BY.get(pool.name, ""))
        if used is None or not len(used):
            continue
        most = int(used[:, column[pool.replica, pool.rank]].max())
        if most > pool.peak:
            yield whole_run("3 pools", f"{_pool(pool)} was sampled at {most}, above its peak of {pool.peak}")


def calls_fit_their_pool(evidence: Evidence) -> Iterator[Finding]:
    calls, result = evidence.calls, evidence.result
    ranks = 1 + max((rank.rank for rank in result.ranks), default=0)
    capacity = np.zeros(ranks * result.num_replicas, dtype=np.int64)
    for pool in result.pools:
        if pool.name == "kv":
            capacity[pool.replica * ranks + pool.rank] = pool.capacity
    of_call = capacity[np.maximum(calls["replica"] * ranks + calls["rank"], 0)]
    yield from broken(
        evidence,
        "3 pools",
        calls["kv_peak_tokens"] > of_call,
        lambda i: f"it held {calls['kv_peak_tokens'][i]} KV tokens of a pool of {of_call[i]}",
        "kv_peak_tokens",
    )


def _pool(pool: PoolSummary) -> str:
    return f"pool {pool.name!r} of replica {pool.replica}, rank {pool.rank}"


def hits_within_bound(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.calls
    hits, bound = calls.hits_all_tiers, reusable_tokens(evidence)
    yield from broken(
        evidence,
        "4 hits",
        hits > bound,
        lambda i: f"{hits[i]} tokens were hits, but at most {bound[i]} can have been seen before",
        "hit_tokens",
    )
    stated = evidence.at_row(evidence.trace.bound_tokens())
    yield from broken(
        evidence,
        "4 hits",
        calls["bound_tokens"] != stated,
        lambda i: f"bound_tokens is {calls['bound_tokens'][i]}, the trace says {stated[i]}",
        "bound_tokens",
    )


def reusable_tokens(evidence: Evidence) -> Int64s:
    """Per call: the longest prefix it can share with any call of the run, in whatever order they came.

    The trace's bound counts calls listed earlier. Calls overlap in a run, so a call may also find what a
    later-listed one that extends it has computed, and an output of its parent that returns.
    """
    calls, trace = evidence.calls, evidence.trace
    parent = evidence.at_row(trace.parent)
    linked = evidence.at_row(trace.shared_tokens)
    reusable = np.where(parent >= 0, linked + evidence.at_row(trace.shared_output_tokens), 0)
    at = evidence.find(np.maximum(parent, 0), calls["instance"])
    child = (parent >= 0) & (at >= 0)
    child &= calls.admitted & (calls["admit_ns"] <= calls["admit_ns"][at])
    np.maximum.at(reusable, at[child], linked[child])
    group = evidence.at_row(trace.group)
    rows = np.flatnonzero(group >= 0)
    if rows.size:
        length = evidence.at_row(trace.group_tokens)[rows]
        _, code = np.unique(group[rows], return_inverse=True)
        top = np.zeros(code.max() + 1, dtype=np.int64)
        np.maximum.at(top, code, length)
        # The longest member of a group shares with the second longest.
        is_top = length == top[code]
        second = np.zeros_like(top)
        np.maximum.at(second, code[~is_top], length[~is_top])
        alone = np.bincount(code[is_top], minlength=len(top))[code] == 1
        others = np.where(is_top & alone, second[code], top[code])
        reusable[rows] = np.maximum(reusable[rows], np.minimum(length, others))
    return reusable


def hits_are_legal(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.calls
    hits, prompt = calls.hits_all_tiers, calls["prompt_tokens"]
    page = evidence.deployment.engine.page_tokens
    yield from broken(
        evidence,
        "4 hits",
        hits % page != 0,
        lambda i: f"{hits[i]} tokens were hits, which is no multiple of the page of {page}",
        "hit_tokens",
    )
    yield from broken(
        evidence,
        "4 hits",
        hits > np.maximum(prompt - 1, 0),
        lambda i: f"{hits[i]} of {prompt[i]} prompt tokens were hits; the last one is always computed",
        "hit_tokens",
    )


def tiers_sum_to_prompt(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.calls
    names = ("hit_tokens", "hit_host_tokens", "hit_storage_tokens", "computed_tokens")
    total = sum((calls[name] for name in names), np.zeros(len(calls), dtype=np.int64))
    negative = np.any([calls[name] < 0 for name in (*names, "recomputed_tokens", "lost_swa_tokens")], axis=0)
    yield from broken(
        evidence,
        "5 tiers",
        calls.admitted & ((total != calls["prompt_tokens"]) | negative),
        lambda i: (
            ", ".join(f"{name} {calls[name][i]}" for name in names)
            + f": they sum to {total[i]}, the prompt has "
            f"{calls['prompt_tokens'][i]} tokens"
        ),
        "computed_tokens",
    )


LAWS: tuple[Check, ...] = (
    pools_within_capacity,
    pools_do_not_leak,
    samples_within_capacity,
    calls_fit_their_pool,
    hits_within_bound,
    hits_are_legal,
    tiers_sum_to_prompt,
)
