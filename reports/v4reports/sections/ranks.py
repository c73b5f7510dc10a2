"""Load per rank and its skew; under lockstep everyone waits for the slowest."""

from __future__ import annotations

from v4reports import numbers
from v4reports.run import Run
from v4reports.sections.base import Section
from v4reports.tables import Column, Table, row


def build(run: Run) -> Section:
    ranks = run.steady.ranks
    tables = (rank_table(run),) if ranks and len(ranks) <= 16 else ()
    folded = (rank_table(run),) if len(ranks) > 16 else ()
    return Section("ranks", "Load of the ranks", _lead(run), ("ranks",), tables, folded=folded)


def rank_table(run: Run) -> Table:
    ranks = run.steady.ranks
    several = len({rank.replica for rank in ranks}) > 1
    longest = max(max(rank.busy_s, rank.attention_s) for rank in ranks)
    rows = [
        row(
            f"Rank {rank.replica} / {rank.rank}" if several else f"Rank {rank.rank}",
            numbers.percent(rank.utilisation),
            numbers.seconds_like(rank.busy_s, longest),
            numbers.seconds_like(rank.attention_s, longest),
            numbers.scaled(rank.decode_tokens),
            numbers.scaled(rank.prefill_tokens),
        )
        for rank in ranks
    ]
    columns = (
        Column("Replica / rank" if several else "Rank", numeric=False),
        Column("Used"),
        Column("Busy"),
        Column("Attention", "by tokens read"),
        Column("Decoded", "tokens"),
        Column("Prefilled", "tokens"),
    )
    return Table("Time and tokens of each rank, steady window", columns, tuple(rows))


def skew(values: list[float]) -> float | None:
    """Greatest ÷ mean; None for nothing."""
    mean = sum(values) / len(values) if values else 0.0
    return max(values) / mean if mean > 0 else None


def _lead(run: Run) -> str:
    ranks = run.steady.ranks
    if not ranks:
        return "The run recorded no load per rank."
    if len(ranks) == 1:
        return f"One rank, used {numbers.percent(ranks[0].utilisation)} of the steady window."
    attention = skew([rank.attention_s for rank in ranks])
    tokens = skew([float(rank.prefill_tokens) for rank in ranks])
    said = []
    if attention is not None:
        said.append(f"The busiest rank does {numbers.times(attention)} the mean attention work")
    if tokens is not None:
        said.append(f"the one with most prefill takes {numbers.times(tokens)} the mean of prefill tokens")
    return (
        (", and ".join(said) + ". Ranks of a replica step together, so all wait for the slowest.")
        if said
        else ""
    )
