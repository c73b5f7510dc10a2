"""From a resolved deployment to ranks that an installed engine drives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from v4sim.cache.legal import HitPolicy
from v4sim.cache.owner import CacheOwner
from v4sim.cache.tree import SpanTree
from v4sim.engine.native import sglang_engine, vllm_engine
from v4sim.engine.native.base import Engine
from v4sim.engine.native.rank import NativeRank
from v4sim.engine.native.rules import NativeRules
from v4sim.prefix import PrefixIndex

if TYPE_CHECKING:
    from v4sim.capacity import RankPools
    from v4sim.config import Deployment, RankLimits
    from v4sim.identity import Content
    from v4sim.model import ModelSpec

NewEngine = Callable[[], Engine]


def make_native(
    deployment: Deployment,
    limits: RankLimits,
    pools: RankPools,
    spec: ModelSpec,
    content: Content,
    *,
    by_priority: bool,
) -> tuple[NativeRules, Callable[[int, int], NativeRank]]:
    """The rules that follow the installed engine, and what makes a rank with a scheduler of its own."""
    engine = deployment.engine
    make = _vllm if engine.kind == "vllm" else _sglang
    rules, new_engine = make(deployment, limits, pools, spec, PrefixIndex(content, 1), by_priority)
    pages = PrefixIndex(content, limits.page_tokens)

    def rank(replica: int, index: int) -> NativeRank:
        own = new_engine()
        owner = CacheOwner(
            SpanTree(pages),
            HitPolicy(engine.swa_veto, limits.page_tokens, spec.sliding_window, spec.num_layers),
            kv_tokens=own.capacity_tokens,
            swa_tokens=pools.swa_tokens if engine.kind == "sglang" else 0,
            request_slots=pools.request_slots,
        )
        return NativeRank(
            replica,
            index,
            owner,
            own,
            overhead_tokens=pools.window_blocks_decode * pools.block_tokens,
            max_context_tokens=deployment.model.max_context_tokens,
        )

    return rules, rank


def _vllm(
    deployment: Deployment,
    limits: RankLimits,
    pools: RankPools,
    spec: ModelSpec,
    prefixes: PrefixIndex,
    by_priority: bool,
) -> tuple[NativeRules, NewEngine]:
    engine, drafter = deployment.engine, deployment.speculation.kind
    assert deployment.model.index_dtype is not None
    options = vllm_engine.Options(
        page_tokens=limits.page_tokens,
        num_blocks=pools.num_blocks or pools.kv_tokens // limits.page_tokens + 1,
        max_model_len=deployment.model.max_context_tokens,
        max_batched_tokens=engine.max_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        long_prefill_token_threshold=engine.long_prefill_token_threshold,
        reserve_full_isl=engine.reserve_full_isl,
        watermark=engine.watermark,
        async_scheduling=engine.async_scheduling,
        prefix_cache=engine.prefix_cache,
        window_retention=engine.window_retention,
        by_priority=by_priority,
        draft_kind=drafter,
        draft_tokens=limits.draft_tokens,
        draft_layers=spec.speculators[drafter].layers if limits.draft_tokens else 0,
        index_dtype=deployment.model.index_dtype,
    )
    rules = NativeRules(
        max_batched_tokens=engine.max_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        draft_tokens=limits.draft_tokens,
        late_results=engine.async_scheduling,
    )
    return rules, vllm_engine.engines(options, spec, prefixes)


def _sglang(
    deployment: Deployment,
    limits: RankLimits,
    pools: RankPools,
    spec: ModelSpec,
    prefixes: PrefixIndex,
    by_priority: bool,
) -> tuple[NativeRules, NewEngine]:
    engine, page = deployment.engine, limits.page_tokens
    assert limits.max_prefill_tokens is not None
    options = sglang_engine.Options(
        page_tokens=page,
        window_tokens=spec.sliding_window,
        kv_tokens=pools.kv_tokens // page * page,
        swa_tokens=pools.swa_tokens // page * page,
        context_tokens=deployment.model.max_context_tokens + 4 * page,
        max_running=min(limits.max_running, pools.request_slots),
        chunk_tokens=limits.chunk_tokens,
        max_prefill_tokens=limits.max_prefill_tokens,
        conservativeness=limits.conservativeness,
        clip_max_new_tokens=engine.clip_max_new_tokens,
        prefill_max_requests=engine.prefill_max_requests,
        prefill_decode_interval=engine.prefill_decode_interval,
        schedule_policy=engine.schedule_policy,
        retraction_policy=engine.retraction_policy,
        overlap=engine.overlap,
        mixed_chunk=engine.mixed_chunk,
        prefix_cache=engine.prefix_cache,
        by_priority=by_priority,
        draft_tokens=limits.draft_tokens,
        bigram_keys=limits.hash_lookahead_tokens > 0,
    )
    return sglang_engine.rules(options), sglang_engine.engines(options, prefixes)
