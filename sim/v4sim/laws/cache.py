"""Memory: hits, tiers and pools (laws 3, 4 and 5).

Units: tokens (request slots in the pool named `slots`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from v4sim.identity import identify
from v4sim.laws.base import Check, Evidence, broken, whole_run
from v4sim.laws.keys import shared_within
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
    stated = evidence.at_row(identify(evidence.trace, evidence.deployment.cache.identity).bound_tokens)
    yield from broken(
        evidence,
        "4 hits",
        calls["bound_tokens"] != stated,
        lambda i: f"bound_tokens is {calls['bound_tokens'][i]}, the trace says {stated[i]}",
        "bound_tokens",
    )


def reusable_tokens(evidence: Evidence) -> Int64s:
    """Per call: the longest prefix that can have been seen before it came.

    The trace's bound counts calls listed earlier. Here an output of the parent that returns counts too, and,
    because calls overlap in a run, what a call listed later has computed before. Where the cache key covers
    more than tokens, no other call of the same key can have computed more than it shares.
    """
    within = _reusable_by_tokens(evidence)
    ids = evidence.deployment.cache.identity
    return np.minimum(within, evidence.at_row(shared_within(evidence, ids))) if ids else within


def _reusable_by_tokens(evidence: Evidence) -> Int64s:
    calls, trace = evidence.calls, evidence.trace
    reusable = np.where(trace.parent >= 0, trace.shared_tokens + trace.shared_output_tokens, 0)
    rows = np.flatnonzero(trace.group >= 0)
    if rows.size:
        group, length = trace.group[rows], trace.group_tokens[rows]
        longest, second = _two_longest(group, length, replayed=int(calls["instance"].max()) > 0)
        others = np.where(length == longest[group], second[group], longest[group])
        reusable[rows] = np.maximum(reusable[rows], np.minimum(length, others))
    of_call = np.asarray(evidence.at_row(reusable))
    # Few runs have a call that was overtaken by what extends it; only they need the walk over all links.
    overtaken = calls.hits_all_tiers > of_call
    return np.maximum(of_call, _from_extensions(evidence)) if overtaken.any() else of_call


def _from_extensions(evidence: Evidence) -> Int64s:
    """Per call: what calls that extend it, directly or through others, can have computed before it came.

    Whatever the longest of them shares with it lies beyond the link to a child and is no longer than that.
    """
    calls, trace = evidence.calls, evidence.trace
    row = calls["row"]
    above = calls.find(trace.parent[row], calls["instance"]).tolist()
    shared = trace.shared_tokens[row].tolist()
    never = np.iinfo(np.int64).max
    came = np.where(calls.admitted, calls["admit_ns"], never).tolist()
    earliest = list(came)  # of the call and all that extends it
    found = [0] * len(came)
    for call in np.argsort(-row, kind="stable").tolist():  # extensions stand later in the trace
        parent = above[call]
        if parent >= 0:
            if earliest[call] <= came[parent]:
                found[parent] = max(found[parent], shared[call])
            earliest[parent] = min(earliest[parent], earliest[call])
    return np.array(found, dtype=np.int64)


def _two_longest(group: NDArray[np.int32], length: Int64s, replayed: bool) -> tuple[Int64s, Int64s]:
    """Per group, the longest member and the longest of the others; a member's copy is another member."""
    longest, second = np.zeros((2, int(group.max()) + 1), dtype=np.int64)
    np.maximum.at(longest, group, length)
    top = length == longest[group]
    np.maximum.at(second, group[~top], length[~top])
    several = np.bincount(group[top], minlength=len(longest)) > 1
    return longest, np.where(several | replayed, longest, second)


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
