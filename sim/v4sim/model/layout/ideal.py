"""The `ideal` layout: entries and nothing else, no padding, a window ring for every layer.

This is the arithmetic of the model's papers: 3.43 GiB for a history of 2^20 tokens of V4-Flash, 4.92
GiB for V4-Pro, 890 bytes a token for V4.1. Compressor state and page padding are left out on purpose.
"""

from __future__ import annotations

from v4sim.model.layout.base import Layout


class IdealLayout(Layout):
    """The lower bound that every engine's layout is compared with."""

    name = "ideal"

    def family_bytes(self, tokens: int) -> dict[str, int]:
        window = min(tokens, self.spec.sliding_window)
        found = {family.name: family.bytes_at(tokens) for family in self.families}
        found["swa"] = self.spec.num_layers * window * self.spec.entries.swa_bytes
        return found

    @property
    def bytes_per_token(self) -> float:
        return sum(family.bytes_per_token for family in self.families)

    @property
    def page_bytes(self) -> int:
        return sum(family.bytes_at(self.page_tokens) for family in self.families)

    @property
    def swa_ring_bytes(self) -> int:
        """The full window of every layer of one request."""
        return self.spec.num_layers * self.spec.sliding_window * self.spec.entries.swa_bytes
