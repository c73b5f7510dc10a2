"""The `vllm` layout: groups of layers that take blocks from one pool, as the hybrid cache manager does.

One group holds the growing families: a block of it is 256 native tokens of every layer. Windows and
compressor states are groups of their own, in small blocks of the same physical size: V4 has 64 window
tokens, 4 rows of overlapping state, 8 of the other; V4.1 32 window tokens and one ring of state. Layers of
a draft head have windows alone. How many groups, and how large a block: `vllm_groups`, by version.

So a history of L tokens costs ceil(L/256) blocks plus, while it runs, the blocks of the windows; the
engine reports its size as concurrency at max_model_len x max_model_len, which counts the windows of the
largest steps. Until 0.26 FP4 index keys lay in the 132 bytes of FP8 ones.

Sources: vLLM 0.25.0 and 0.33.0, `models/deepseek_v4/{attention,compressor}.py`, `deepseek_v41/attention.py`,
`v1/attention/backends/mla/sparse_swa.py` (blocks, pages of 576 and 512 bytes), `v1/kv_cache_interface.py`
(blocks of a window). Left out: V4.1 on Hopper, which stores V4's entries.
"""

from __future__ import annotations

import re
from math import ceil, lcm

from v4sim.model.layout.base import FP32, Layout, state_rings
from v4sim.model.layout.sglang import PAD_BYTES
from v4sim.model.layout.vllm_groups import HISTORY, RING, Bucket, Packing, pack_tuples, pack_widest
from v4sim.model.spec import ModelSpec

SWA_BLOCK_TOKENS = 64
OVERLAP_STATE_BLOCK = 4
STATE_BLOCK = 8
LATENT_SWA_BLOCK_TOKENS = 32
LATENT_PAD_BYTES = 512
NEWEST = "0.33"


def _release(version: str) -> tuple[int, int]:
    """(major, minor). A build from source without a tag (0.1.dev..., dev) is taken for the newest."""
    found = re.match(r"(\d+)\.(\d+)", version)
    release = (int(found[1]), int(found[2])) if found else (0, 0)
    return release if release > (0, 1) else _release(NEWEST)


class VllmLayout(Layout):
    """Blocks of one pool."""

    name = "vllm"

    def __init__(
        self,
        spec: ModelSpec,
        index_dtype: str,
        page_tokens: int = 256,
        draft_tokens: int = 0,
        draft_layers: int = 0,
        version: str = NEWEST,
    ) -> None:
        super().__init__(spec, index_dtype, page_tokens)
        self._release = _release(version)
        self.draft_layers = draft_layers
        # Drafts do not lengthen V4's windows of state: a block holds the same few rows.
        self.rings = state_rings(spec, draft_tokens if self._is_latent else 0)
        self.buckets = (self._history(), self._windows(), *self._states())
        self.packing: Packing = (pack_tuples if self._is_old else pack_widest)(self.buckets)

    @property
    def _is_old(self) -> bool:
        return self._release < (0, 27)

    @property
    def _is_latent(self) -> bool:
        return self.spec.compressor.kind == "latent"

    def _padded(self, size: int) -> int:
        unit = LATENT_PAD_BYTES if self._is_latent else PAD_BYTES
        return -(-size // unit) * unit

    def _history(self) -> Bucket:
        pages = []
        for family in self.families:
            entry = family.entry_bytes
            if self._is_old and family.name.endswith("_index"):
                entry = max(self.spec.index_bytes.values())
            pages.append((self._padded(self.page_tokens // family.ratio * entry), family.layers))
        return Bucket("history", HISTORY, self.page_tokens, tuple(pages))

    def _windows(self) -> Bucket:
        spec, entries = self.spec, self.spec.entries
        block = LATENT_SWA_BLOCK_TOKENS if self._is_latent else SWA_BLOCK_TOKENS
        page = self._padded(block * entries.swa_bytes)
        # V4.1's kernels read both kinds of entries as rows of the whole cache.
        alignment = lcm(entries.swa_bytes, entries.main_bytes) if self._is_latent else 1
        layers = spec.num_layers + self.draft_layers
        return Bucket("swa", spec.sliding_window, block, ((page, layers),), alignment)

    def _states(self) -> list[Bucket]:
        """Compressor state; that of index keys lies beside its layer's main state."""
        spec = self.spec
        if self._is_latent:
            return [
                Bucket(ring.name, RING, ring.rows, ((ring.rows * ring.values * FP32, ring.layers),))
                for ring in self.rings
            ]
        found = []
        for ratio in spec.ratios:
            overlap = ratio in spec.compressor.overlap_ratios
            block = OVERLAP_STATE_BLOCK if overlap else STATE_BLOCK
            pages = tuple(
                (self._padded(block * ring.values * FP32), ring.layers)
                for ring in self.rings
                if ring.ratio == ratio
            )
            found.append(Bucket(f"c{ratio}_state", ratio * (2 if overlap else 1), block, pages))
        return found

    @property
    def block_bytes(self) -> int:
        """One physical block, all layers: what any group takes for one of its blocks."""
        return self.packing.block_bytes

    @property
    def page_bytes(self) -> int:
        return self.block_bytes

    def steps_in_flight(self, async_scheduling: bool) -> int:
        """Steps whose tokens are under way at once: a window moves on only when results are known.

        0.25 counted one in any case.
        """
        return 2 if async_scheduling and self._release >= (0, 26) else 1

    def window_blocks(self, step_tokens: int) -> int:
        """Most blocks of a long request's window groups, while so many of its tokens are under way."""
        tokens = self.spec.max_context_tokens
        return sum(packed.groups * packed.blocks(tokens, step_tokens) for packed in self.packing.buckets[1:])

    def held_window_blocks(self, step_tokens: int) -> int:
        """What a long request holds of them on average: what many of them hold together.

        vLLM's own count, while one decodes: `held` in `tests/oracle/recorded/vllm_layout.json.gz`.
        """
        return ceil(sum(one.groups * one.mean_blocks(step_tokens) for one in self.packing.buckets[1:]))

    @property
    def kept_window_blocks(self) -> int:
        """Blocks of all window groups that a prefix hit at one boundary needs."""
        return sum(packed.groups * packed.kept_blocks for packed in self.packing.buckets[1:])

    def request_blocks(self, tokens: int, step_tokens: int) -> int:
        """Most blocks of a running request with `tokens` of history."""
        return sum(packed.groups * packed.blocks(tokens, step_tokens) for packed in self.packing.buckets)

    def reported_blocks(self, max_model_len: int, step_tokens: int) -> int:
        """Blocks of the longest request as the start-up log counts them.

        0.25 counts the bytes of layers in units of the history's, so that a block of few layers counts for
        less than the block it takes.
        """
        if not self._is_old:
            return self.request_blocks(max_model_len, step_tokens)
        history = self.packing.buckets[0].layer_bytes
        total = sum(
            packed.blocks(max_model_len, step_tokens) * packed.layer_bytes for packed in self.packing.buckets
        )
        return -(-total // history)

    @property
    def hit_unit_tokens(self) -> int:
        """Prefixes are shared in multiples of this: the LCM of all groups' block sizes."""
        return lcm(*(bucket.block_tokens for bucket in self.buckets if bucket.window != RING))

    def family_bytes(self, tokens: int) -> dict[str, int]:
        """Blocks of the growing group by family, and the window groups of a decoding request as `swa`."""
        blocks = -(-tokens // self.page_tokens)
        found: dict[str, int] = {}
        rest = blocks * self.block_bytes
        for family in self.families[1:]:
            page = self._padded(self.page_tokens // family.ratio * family.entry_bytes)
            found[family.name] = blocks * family.layers * page
            rest -= found[family.name]
        found[self.families[0].name] = rest
        found["swa"] = self.window_blocks(1) * self.block_bytes
        return found

    @property
    def bytes_per_token(self) -> float:
        return self.block_bytes / self.page_tokens

    def reported_bytes_per_token(self, max_model_len: int, step_tokens: int) -> float:
        """Bytes per token of the size that the engine logs at start-up; it holds for this length only."""
        return self.reported_blocks(max_model_len, step_tokens) * self.block_bytes / max_model_len
