"""A chunk: what one call computes of its prompt in one step."""

from __future__ import annotations

from dataclasses import dataclass

from v4sim.engine.call import Call


@dataclass(slots=True, init=False)
class Chunk:
    """`new_tokens` of one call to compute on top of `past_tokens`; `last` samples a token.

    `padding` rows are computed with it and mean nothing.
    """

    call: Call
    new_tokens: int
    past_tokens: int
    last: bool
    padding: int

    def __init__(self, call: Call, new_tokens: int, past_tokens: int, last: bool, padding: int = 0) -> None:
        # Written out: compiled code makes one per rank and step, and a generated one is interpreted.
        self.call, self.new_tokens, self.past_tokens = call, new_tokens, past_tokens
        self.last, self.padding = last, padding

    def after(self, steps: int) -> Chunk:
        """The one that follows so many steps later, where each step repeats it on top of the last."""
        past = self.past_tokens + steps * self.new_tokens
        return Chunk(self.call, self.new_tokens, past, self.last, self.padding)
