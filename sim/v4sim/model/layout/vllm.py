"""The `vllm` layout: groups of layers that take blocks from one pool, as the hybrid cache manager does.

One group holds the growing families: a block of it is 256 native tokens of every layer. Windows and
compressor states are groups of their own, in small blocks of the same physical size: 64 window tokens,
4 rows of overlapping state, 8 of the other. A physical block is a stack of `tuples` rows, each with one
main page, one index page and one long-ratio page, so a window group holds at most that many layers. The
index page is as wide as the wider of its two users, 64 keys or 4 rows of fp32 index state: FP4 keys
save no memory here. Pages are aligned to 576 bytes.

So a history of L tokens costs ceil(L/256) blocks plus, while it runs, the blocks of the windows; the
engine reports its size as concurrency at max_model_len x max_model_len, which counts the windows of a
full prefill step.

Sources: vLLM `models/deepseek_v4/compressor.py` and the sliding-window cache specs of its V1 cache
manager (mid 2026). The grouping is our reading of them; it lands 3 % above the 7,033 bytes a token that
an 8xB200 campaign derived.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from v4sim.model.layout.base import FP32, Layout, state_rings
from v4sim.model.layout.sglang import padded
from v4sim.model.spec import ModelSpec

SWA_BLOCK_TOKENS = 64
OVERLAP_STATE_BLOCK = 4
STATE_BLOCK = 8


@dataclass(frozen=True, slots=True)
class WindowGroup:
    """A cache group that keeps only its window: `window` tokens in blocks of `block` tokens."""

    name: str
    window: int
    block: int

    def blocks(self, step_tokens: int) -> int:
        """Most blocks a request holds while a step adds `step_tokens` to it."""
        return -(-(self.window - 1 + step_tokens) // self.block) + 1


class VllmLayout(Layout):
    """Blocks of one pool."""

    name = "vllm"

    def __init__(
        self, spec: ModelSpec, index_dtype: str, page_tokens: int = 256, draft_tokens: int = 0
    ) -> None:
        super().__init__(spec, index_dtype, page_tokens)
        self.draft_tokens = draft_tokens
        self.rings = state_rings(spec, draft_tokens)

    @property
    def tuples(self) -> int:
        """Layers side by side in a block: as many as the largest family has."""
        return max(family.layers for family in self.families)

    @property
    def block_bytes(self) -> int:
        """One physical block, all layers: what any group takes for one of its blocks."""
        total = 0
        for family in self.families:
            page = self.page_tokens // family.ratio * family.entry_bytes
            if family.name.endswith("_index"):
                state = [r for r in self.rings if r.name == f"{family.name}_state"]
                page = max([page, *(OVERLAP_STATE_BLOCK * r.values * FP32 for r in state)])
            total += family.layers * padded(page)
        return total

    @property
    def page_bytes(self) -> int:
        return self.block_bytes

    @property
    def window_groups(self) -> tuple[WindowGroup, ...]:
        """Groups that recycle their blocks: the windows of all layers, and each kind of compressor state."""
        spec = self.spec
        groups = [
            WindowGroup(f"swa{i}", spec.sliding_window, SWA_BLOCK_TOKENS)
            for i in range(-(-spec.num_layers // self.tuples))
        ]
        for ring in self.rings:
            if ring.name.endswith("_index_state"):
                continue  # lives in the index pages of its main state's blocks
            overlap = ring.ratio in spec.compressor.overlap_ratios
            window = ring.ratio * 2 if overlap else ring.ratio
            groups.append(WindowGroup(ring.name, window, OVERLAP_STATE_BLOCK if overlap else STATE_BLOCK))
        return tuple(groups)

    def window_blocks(self, step_tokens: int) -> int:
        """Blocks that the window groups of one request hold during a step of that many tokens."""
        return sum(group.blocks(step_tokens) for group in self.window_groups)

    @property
    def kept_window_blocks(self) -> int:
        """Blocks of all window groups that a prefix hit at one boundary needs."""
        return sum(-(-(group.window - 1) // group.block) for group in self.window_groups)

    def request_blocks(self, tokens: int, step_tokens: int) -> int:
        """Blocks of a running request with `tokens` of history."""
        return -(-tokens // self.page_tokens) + self.window_blocks(min(step_tokens, max(tokens, 1)))

    @property
    def hit_unit_tokens(self) -> int:
        """Prefixes are shared in multiples of this: the LCM of all groups' block sizes."""
        return lcm(self.page_tokens, *(group.block for group in self.window_groups))

    def family_bytes(self, tokens: int) -> dict[str, int]:
        """Blocks of the growing group by family, and the window groups of a decoding request as `swa`."""
        blocks = -(-tokens // self.page_tokens)
        found: dict[str, int] = {}
        rest = blocks * self.block_bytes
        for family in self.families[1:]:
            page = padded(self.page_tokens // family.ratio * family.entry_bytes)
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
        return self.request_blocks(max_model_len, step_tokens) * self.block_bytes / max_model_len
