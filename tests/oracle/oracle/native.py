"""vLLM's own scheduler under a script, as the simulator drives it: `ours` with the adapter in its place.

What `vllm_v4_driver` decides with token ids, vLLM's hashes and a loop of its own, the adapter must decide
with hashes from prefix structure inside the simulator's replica loop.
"""

from __future__ import annotations

from typing import Any

from oracle.ours import Watched, World
from v4sim.cache.legal import HitPolicy
from v4sim.cache.owner import CacheOwner
from v4sim.cache.tree import SpanTree
from v4sim.engine.base import Scheduler
from v4sim.engine.native import vllm_engine
from v4sim.engine.native.rank import NativeRank
from v4sim.engine.native.rules import NativeRules
from v4sim.model import spec as model_spec
from v4sim.prefix import PrefixIndex

MODEL = "v4-flash"


class WatchedNative(Watched, NativeRank):
    """Notes what leaves and what enters."""


class NativeWorld(World):
    """One rank under one script, driven by the installed vLLM."""

    def _engine(self, table: Any) -> tuple[Watched, Scheduler]:
        options, spec = self.options, model_spec(MODEL)
        drafts = options.get("draft_tokens", 0)
        page = options["page_tokens"]
        chosen = vllm_engine.Options(
            page_tokens=page,
            num_blocks=options["kv_tokens"] // page + 1,
            max_model_len=spec.max_context_tokens,
            max_batched_tokens=options["max_batched_tokens"],
            max_num_seqs=options["max_num_seqs"],
            long_prefill_token_threshold=options.get("long_prefill_token_threshold", 0),
            reserve_full_isl=options.get("reserve_full_isl", True),
            watermark=options.get("watermark", 0.0),
            async_scheduling=options.get("async_scheduling", False),
            prefix_cache=options.get("prefix_cache", True),
            window_retention="replay" if options.get("retention_interval", 0) == 0 else "all",
            by_priority=any(call.priority for call in self.script.calls),
            draft_kind=options.get("speculation", "mtp") if drafts else "off",
            draft_tokens=drafts,
            draft_layers=1 if drafts else 0,
            index_dtype=options.get("index_dtype", "fp4"),
        )
        engine = vllm_engine.engines(chosen, spec, PrefixIndex(table, 1))()
        owner = CacheOwner(
            SpanTree(PrefixIndex(table, page)),
            HitPolicy("strict", page, spec.sliding_window, spec.num_layers),
            kv_tokens=engine.capacity_tokens,
            swa_tokens=0,
            request_slots=chosen.max_num_seqs,
        )
        rank = WatchedNative(0, 0, owner, engine, overhead_tokens=0, max_context_tokens=chosen.max_model_len)
        rules = NativeRules(
            max_batched_tokens=chosen.max_batched_tokens,
            max_num_seqs=chosen.max_num_seqs,
            draft_tokens=drafts,
            late_results=chosen.async_scheduling,
        )
        return rank, rules
