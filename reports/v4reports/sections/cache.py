"""Cache hits by tier against the infinite-cache bound, and the pools that hold them."""

from __future__ import annotations

from v4reports import numbers
from v4reports.names import POOLS, TIERS, label, ordered
from v4reports.run import Run
from v4reports.sections.base import Section
from v4reports.tables import Cell, Column, Table, row, value_table


def build(run: Run) -> Section:
    tables = [table for table in (tier_table(run), loss_table(run), pool_table(run)) if table.rows]
    return Section("cache", "Cache and pools", _lead(run), ("hits", "pools"), tuple(tables))


def tier_table(run: Run) -> Table:
    tokens = run.steady.tokens
    prompt = tokens.get("prompt", 0.0)
    rows = []
    if prompt > 0:
        rows = [
            row(
                Cell(f"{label(TIERS, tier)}{'' if tier == 'computed' else ' hit'}"),
                numbers.scaled(tokens[tier]),
                numbers.percent(tokens[tier] / prompt),
            )
            for tier in TIERS
            if tier in tokens
        ]
        rows.append(row("Prompt tokens", numbers.scaled(prompt), "100 %"))
    return Table(
        "Prompt tokens by tier, steady window",
        (Column("Tier", numeric=False), Column("Tokens"), Column("Share")),
        tuple(rows),
        total=True,
    )


def loss_table(run: Run) -> Table:
    hit, tokens = run.steady.hit.get, run.steady.tokens.get
    return value_table(
        "Hits against an infinite cache, steady window",
        (
            ("Hit ratio", numbers.percent(hit("token_ratio")), _interval(run)),
            ("Infinite-cache bound", numbers.percent(hit("bound_ratio")), "what the trace allows at best"),
            (
                "Lost to missing window state",
                numbers.scaled(hit("lost_swa_tokens")),
                "tokens; the KV was there, its sliding window was not",
            ),
            (
                "Equal, but of another state",
                numbers.scaled(hit("stale_tokens") or None),
                "tokens whose snapshot, tool schema, system prompt or environment has changed, as the trace "
                f"says; {numbers.scaled(hit('stale_served_tokens'))} were served, as cache.identity decides",
            ),
            (
                "Computed again",
                numbers.scaled(tokens("recomputed")),
                "tokens on top of the prompt: retraction, preemption, window tails",
            ),
        ),
    )


def pool_table(run: Run) -> Table:
    """One row per pool name: ranks are summed up as mean and fullest."""
    names = ordered(POOLS, dict.fromkeys(pool.name for pool in run.steady.pools))
    rows = []
    for name in names:
        pools = [pool for pool in run.steady.pools if pool.name == name and pool.capacity_tokens > 0]
        if not pools:
            continue
        means = [p.mean_tokens / p.capacity_tokens for p in pools if p.mean_tokens is not None]
        peaks = [(p.peak_tokens / p.capacity_tokens, p) for p in pools if p.peak_tokens is not None]
        peak = max(peaks, key=lambda item: item[0], default=None)
        sizes = {pool.capacity_tokens for pool in pools}
        size = (
            numbers.scaled(max(sizes))
            if len(sizes) == 1
            else f"{numbers.scaled(min(sizes))} to {numbers.scaled(max(sizes))}"
        )
        rows.append(
            row(
                label(POOLS, name),
                Cell(size, f"× {len(pools)} ranks" if len(pools) > 1 else ""),
                numbers.percent(sum(means) / len(means)) if means else numbers.UNKNOWN,
                Cell(numbers.percent(peak[0]), f"rank {peak[1].rank}" if len(pools) > 1 else "")
                if peak
                else numbers.UNKNOWN,
            )
        )
    return Table(
        "Pools",
        (
            Column("Pool", numeric=False),
            Column("Size"),
            Column("Mean use", "steady window"),
            Column("Peak use", "whole run"),
        ),
        tuple(rows),
    )


def _interval(run: Run) -> str:
    low, high = (run.steady.hit.get(f"token_ratio_ci_{end}") for end in ("low", "high"))
    return (
        ""
        if low is None or high is None
        else f"80 % interval {numbers.percent(low)} to {numbers.percent(high)}"
    )


def _lead(run: Run) -> str:
    ratio, bound = run.steady.hit.get("token_ratio"), run.steady.hit.get("bound_ratio")
    if ratio is None:
        return "No call was admitted in the steady window."
    text = f"{numbers.percent(ratio)} of prompt tokens were served from cache"
    if bound is None:
        return text + "."
    if ratio > bound:  # outputs that return are hits, but in no bound
        return f"{text}, outputs that came back included; without those, {numbers.percent(bound)} at best."
    text += f"; an infinite cache would have served {numbers.percent(bound)}."
    missed = bound - ratio
    if missed > 0.0005 and ratio < 1:
        text += f" Closing the gap would spare {numbers.percent(missed / (1 - ratio))} of the prefill tokens."
    return text
