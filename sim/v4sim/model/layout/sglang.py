"""The `sglang` layout: what SGLang allocates, and what it prices when it sizes its pools.

Allocated: pages of 256 native tokens; V4's main and window pages padded to multiples of 576 bytes, index
pages and V4.1's not. Window pages carry the ring rows of the overlapping compressors with them; the other
rings are reserved per request slot. Priced: `bytes_per_full_token`, with the index key at 132 bytes even
where FP4 keys are stored, the window at `swa_full_ratio` of the tokens, and a share for the draft head.
0.5.15 prices without padding; 0.5.23 prices whole pages, and one layer of drafts however many there are.

V4.1's windows have a pool for the requests that may run and four kept tails of each (`cap_swa_tokens`).

Sources: SGLang `mem_cache/deepseek_v4_memory_pool.py`, `deepseek_v4_compress_state.py` and the V4 pool
configurator, mid 2026 and 0.5.23. The latter's own figures: `tests/oracle/recorded/sglang_pools.json.gz`.
"""

from __future__ import annotations

from dataclasses import replace

from v4sim.model.layout.base import FP32, Family, Layout, StateRing, state_rings
from v4sim.model.spec import ModelSpec

PAD_BYTES = 576
PRICED_INDEX_BYTES = 132
SWA_INTERVAL_TOKENS = 128  # SGLANG_SWA_EVICTION_INTERVAL
TAILS_PER_REQUEST = 4
NEWEST = "0.5.23"


def padded(size: int) -> int:
    """Rounded up to the pool's alignment."""
    return -(-size // PAD_BYTES) * PAD_BYTES


class SglangLayout(Layout):
    """Pages as allocated, tokens as priced."""

    name = "sglang"

    def __init__(
        self,
        spec: ModelSpec,
        index_dtype: str,
        page_tokens: int = 256,
        draft_tokens: int = 0,
        version: str = NEWEST,
    ) -> None:
        super().__init__(spec, index_dtype, page_tokens)
        self.draft_tokens = draft_tokens
        self.is_old = version.startswith("0.5.15")
        self._is_latent = spec.compressor.kind == "latent"
        self.rings = state_rings(spec, draft_tokens)
        if self._is_latent:
            # A pair; with drafts the smallest power of two above what a verify step writes.
            rows = 1 << (draft_tokens + 2).bit_length() if draft_tokens else 2
            self.rings = tuple(replace(ring, rows=rows) for ring in self.rings)

    def family_page_bytes(self, family: Family) -> int:
        """One page of one layer of a family."""
        size = self.page_tokens // family.ratio * family.entry_bytes
        return size if family.name.endswith("_index") else self._padded(size)

    def _padded(self, size: int) -> int:
        return size if self._is_latent else padded(size)

    @property
    def page_bytes(self) -> int:
        return sum(family.layers * self.family_page_bytes(family) for family in self.families)

    @property
    def swa_layer_page_bytes(self) -> int:
        return self._padded(self.page_tokens * self.spec.entries.swa_bytes)

    @property
    def page_rings(self) -> tuple[StateRing, ...]:
        """Rings addressed by window page: they are cached and evicted with it."""
        return tuple(ring for ring in self.rings if not self._per_slot(ring))

    @property
    def slot_rings(self) -> tuple[StateRing, ...]:
        """Rings reserved per request slot."""
        return tuple(ring for ring in self.rings if self._per_slot(ring))

    def _per_slot(self, ring: StateRing) -> bool:
        return ring.ratio not in self.spec.compressor.overlap_ratios

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

    def state_bytes(self, slots: int) -> int:
        """Rings of so many request slots; 0.5.23 adds a slot, a spare ring and a row, in whole groups."""
        if self.is_old:
            return slots * self.state_bytes_per_slot
        total = 0
        for ring in self.slot_rings:
            rows = (slots + 2) * ring.rows + 1
            total += -(-rows // ring.ratio) * ring.ratio * ring.layers * ring.values * FP32
        return total

    def bytes_per_full_token(self, swa_full_ratio: float = 0.1, draft_layers: int = 0) -> float:
        """What the pool configurator charges a token: growing families plus its share of the window pool.

        A ratio of 0: the window pool has a size of its own.
        """
        if not self.is_old:
            priced = self._index_price() + sum(
                family.layers * self.family_page_bytes(family) / self.page_tokens
                for family in self.families
                if not family.name.endswith("_index")
            )
            per_token = priced + swa_full_ratio * self.swa_page_bytes / self.page_tokens
            return per_token * self._inflation(draft_layers)
        priced = self._index_price() + sum(
            family.bytes_per_token for family in self.families if not family.name.endswith("_index")
        )
        window = self.spec.num_layers * self.spec.entries.swa_bytes
        per_token = priced + swa_full_ratio * (window + self.swa_page_state_bytes / self.page_tokens)
        return per_token * self._inflation(draft_layers)

    def bytes_per_swa_token(self, draft_layers: int = 0) -> float:
        """What the configurator charges a token of a window pool that has a size of its own."""
        return self.swa_page_bytes / self.page_tokens * self._inflation(draft_layers)

    def cap_swa_tokens(self, max_running: int, chunk_tokens: int, late_results: bool) -> int:
        """The window pool where no ratio sizes it: so many calls of one rank, two chunks, kept tails.

        A call: a window, what leaves it between two evictions, a page, and what a decode step may take.
        """
        page, window = self.page_tokens, self.spec.sliding_window
        width = self.draft_tokens + 1
        step = 2 * width if self.draft_tokens else page
        each = window + SWA_INTERVAL_TOKENS * width + page + step
        chunks = (2 if late_results else 1) * chunk_tokens + page
        tails = TAILS_PER_REQUEST * max_running * (window + page)
        return -(-(each * max_running + chunks + tails) // page) * page

    def _inflation(self, draft_layers: int) -> float:
        layers = draft_layers if self.is_old else min(draft_layers, 1)
        return (self.spec.num_layers + layers) / self.spec.num_layers

    def _index_price(self) -> float:
        """Index keys at their FP8 size, or, if a model has none, at that of FP4."""
        wide = PRICED_INDEX_BYTES if "fp8" in self.spec.index_bytes else None
        return sum(
            family.layers * (wide or family.entry_bytes) / family.ratio
            for family in self.families
            if family.name.endswith("_index")
        )
