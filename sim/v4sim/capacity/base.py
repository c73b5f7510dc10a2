"""The pools of one DP rank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankPools:
    """What one attention-DP rank can hold, and the ledger of each of its GPUs.

    kv_tokens: full-KV capacity in native tokens, whole pages. swa_tokens: sliding-window capacity (SGLang: a
    pool of its own; vLLM: the same blocks serve both, see block_pool). request_slots: requests that
    may run at once. state_bytes_per_request: compressor state reserved for each slot. ledger: (name, bytes,
    source) of one GPU, summing exactly to its memory.
    """

    kv_tokens: int
    swa_tokens: int
    request_slots: int
    state_bytes_per_request: int
    ledger: tuple[tuple[str, int, str], ...]
