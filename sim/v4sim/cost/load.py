"""What one attention-DP rank brings to a step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, init=False)
class RankLoad:
    """The load of one rank; never changed once it is made.

    `__init__` is written out because compiled code makes one per rank and step, and a generated one is
    interpreted.
    """

    rows: int  # sequences that decode
    ctx_sum: int  # tokens already in KV, summed over those sequences
    ctx_max: int  # the longest of them
    prefill: tuple[tuple[int, int], ...]  # (new_tokens, past_tokens) per chunk

    def __init__(
        self, rows: int, ctx_sum: int, ctx_max: int, prefill: tuple[tuple[int, int], ...] = ()
    ) -> None:
        self.rows = rows
        self.ctx_sum = ctx_sum
        self.ctx_max = ctx_max
        self.prefill = prefill

    @property
    def prefill_tokens(self) -> int:
        return sum(new for new, _ in self.prefill)

    @property
    def idle(self) -> bool:
        return self.rows == 0 and not self.prefill
