"""The `sglang` layout: what SGLang allocates, and what it prices when it sizes its pools.

Allocated: pages of 256 native tokens; main and window pages padded to multiples of 576 bytes, index
pages not. Window pages carry the ring rows of the overlapping compressors with them; the other rings
are reserved per request slot. Priced: `bytes_per_full_token`, without padding, with the index key at 132
bytes even where FP4 keys are stored, the window at `swa_full_ratio` of the tokens, and one more window layer
for each layer of a draft head. The two numbers differ; neither is the truth about the other.

Sources: SGLang `mem_cache/deepseek_v4_memory_pool.py`, `deepseek_v4_compress_state.py` and the V4 pool
configurator (mid 2026). Assumed for V4.1, where no source was found: the same padding and window pages.
"""

from __future__ import annotations

from v4sim.model.layout.base import FP32, Family, Layout, StateRing, state_rings
from v4sim.model.spec import ModelSpec

PAD_BYTES = 576
PRICED_INDEX_BYTES = 132


def padded(size: int) -> int:
    """Rounded up to the pool's alignment."""
    return -(-size // PAD_BYTES) * PAD_BYTES


class SglangLayout(Layout):
    """Pages as allocated, tokens as priced."""

    name = "sglang"

    def __init__(
        self, spec: ModelSpec, index_dtype: str, page_tokens: int = 256, draft_tokens: int = 0
    ) -> None:
        super().__init__(spec, index_dtype, page_tokens)
        self.draft_tokens = draft_tokens
        self.rings = state_rings(spec, draft_tokens)

    def family_page_bytes(self, family: Family) -> int:
        """One page of one layer of a family."""
        size = self.page_tokens // family.ratio * family.entry_bytes
        return size if family.name.endswith("_index") else padded(size)

    @property
    def page_bytes(self) -> int:
        return sum(family.layers * self.family_page_bytes(family) for family in self.families)

    @property
    def swa_layer_page_bytes(self) -> int:
        return padded(self.page_tokens * self.spec.entries.swa_bytes)

    @property
    def page_rings(self) -> tuple[StateRing, ...]:
        """Rings addressed by window page: they are cached and evicted with it."""
        return tuple(ring for ring in self.rings if not self._per_slot(ring))

    @property
    def slot_rings(self) -> tuple[StateRing, ...]:
        """Rings reserved per request slot."""
        return tuple(ring for ring in self.rings if self._per_slot(ring))

    def _per_slot(self, ring: StateRing) -> bool:
        gated = self.spec.compressor.kind == "gated"
        return gated and ring.ratio not in self.spec.compressor.overlap_ratios

    @property
    def swa_page_bytes(self) -> int:
        """One window page of all layers, with the compressor state that lives in it."""
        return self.spec.num_layers * self.swa_layer_page_bytes + self.swa_page_state_bytes

    @property
    def swa_page_state_bytes(self) -> int:
        return sum(ring.bytes for ring in self.page_rings)

    @property
    def state_bytes_per_slot(self) -> int:
        return sum(ring.bytes for ring in self.slot_rings)

    def family_bytes(self, tokens: int) -> dict[str, int]:
        """Allocated bytes: whole pages of each family and the window pages that a running request needs."""
        pages = -(-tokens // self.page_tokens)
        found = {f.name: pages * f.layers * self.family_page_bytes(f) for f in self.families}
        window = min(tokens, self.spec.sliding_window)
        swa_pages = -(-window // self.page_tokens)
        found["swa"] = swa_pages * self.spec.num_layers * self.swa_layer_page_bytes
        return found

    @property
    def bytes_per_token(self) -> float:
        return self.page_bytes / self.page_tokens

    def bytes_per_full_token(self, swa_full_ratio: float = 0.1, draft_layers: int = 0) -> float:
        """What the pool configurator charges a token: growing families plus its share of the window pool."""
        priced = sum(family.layers * self._priced_bytes(family) / family.ratio for family in self.families)
        window = self.spec.num_layers * self.spec.entries.swa_bytes
        state = sum(ring.layers * ring.rows * ring.values * FP32 for ring in self.page_rings)
        per_token = priced + swa_full_ratio * (window + state / self.page_tokens)
        return per_token * (self.spec.num_layers + draft_layers) / self.spec.num_layers

    def _priced_bytes(self, family: Family) -> int:
        if family.name.endswith("_index") and "fp8" in self.spec.index_bytes:
            return PRICED_INDEX_BYTES
        return family.entry_bytes
