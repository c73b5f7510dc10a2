"""How far a run left the tables: the largest sizes asked, compared with where each table ends.

The cost model continues beyond a table (by composed legs, or by the last slope) and says so here; it
never answers silently. Sizes are tokens.
"""

from __future__ import annotations

_TABLE_BATCH_CONTEXT = 1_048_576  # batch x context at which the published decode tables end


class Seen:
    """The largest sizes asked so far."""

    __slots__ = ("batch_context", "context", "group", "new", "past", "tokens")

    def __init__(self) -> None:
        self.tokens = self.context = self.batch_context = self.new = self.past = self.group = 0

    def decoding(self, ctx_sum: int, ctx_max: int) -> None:
        self.batch_context = max(self.batch_context, ctx_sum)
        self.context = max(self.context, ctx_max)

    def chunks(self, prefill: tuple[tuple[int, int], ...]) -> int:
        """New tokens of all chunks."""
        total = 0
        for new, past in prefill:
            total += new
            if new > self.new:
                self.new = new
            if past > self.past:
                self.past = past
        return total

    def warnings(self, *, tokens: float, context: float, new: float, past: float, group: float) -> list[str]:
        """One sentence for each table that was left; the arguments are where the tables end."""
        checks = (
            ("decode modules", "query tokens on a rank", self.tokens, tokens),
            ("decode context", "tokens in one sequence", self.context, context),
            ("decode batch x context", "tokens on a rank", self.batch_context, _TABLE_BATCH_CONTEXT),
            ("prefill modules", "new tokens in a chunk", self.new, new),
            ("prefill modules", "past tokens", self.past, past),
            ("routed experts", "tokens on all ranks", self.group, group),
        )
        return [
            f"{what}: the run reached {value:,} {unit}, the tables end at {top:,.0f}; beyond it the legs or "
            "the last slope are continued"
            for what, unit, value, top in checks
            if value > top
        ]
