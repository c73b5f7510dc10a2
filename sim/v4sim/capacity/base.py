"""What one DP rank can hold, as plain data between the planner, the engine and the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class LedgerLine(NamedTuple):
    """One use of a GPU's memory."""

    name: str
    bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class RankPools:
    """The pools of one attention-DP rank, and the ledger of each of its GPUs.

    kv_tokens: full-KV capacity in native tokens, whole pages. swa_tokens: sliding-window capacity;
    SGLang has a pool for it, vLLM serves both from the same blocks (then it equals kv_tokens).
    request_slots: requests that may run at once. state_bytes_per_request: compressor state reserved for
    each slot. ledger: (name, bytes, source) lines of one GPU that sum exactly to its memory.

    vLLM only: num_blocks of block_tokens; a running request holds window_blocks_decode blocks beyond
    its history while it decodes, and window_blocks_step while prefill steps of the full token budget run;
    window_blocks_kept stay behind where a window does.
    Elsewhere 0. reported_tokens: the size as the engine's start-up log words it.
    """

    kv_tokens: int
    swa_tokens: int
    request_slots: int
    state_bytes_per_request: int
    ledger: tuple[LedgerLine, ...]
    reported_tokens: int
    block_tokens: int = 0
    num_blocks: int = 0
    window_blocks_decode: int = 0
    window_blocks_step: int = 0
    window_blocks_kept: int = 0

    def bytes_of(self, name: str) -> int:
        """Bytes of one ledger line; 0 for a line that this deployment does not have."""
        return sum(line.bytes for line in self.ledger if line.name == name)

    @property
    def memory_bytes(self) -> int:
        return sum(line.bytes for line in self.ledger)

    @property
    def cache_bytes(self) -> int:
        """Device bytes of the cache: full KV and window pages, what a host tier mirrors."""
        return self.bytes_of("kv") + self.bytes_of("swa")
