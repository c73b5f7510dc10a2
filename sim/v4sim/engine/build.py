"""From a resolved deployment to replicas: which rules, which pools, which ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from v4sim.cache.legal import HitPolicy
from v4sim.cache.marks import WindowMarks
from v4sim.cache.owner import CacheOwner
from v4sim.cache.sglang_tree import SGLangTree
from v4sim.cache.vllm_tree import VLLMTree
from v4sim.engine.base import Scheduler
from v4sim.engine.rank import Rank
from v4sim.engine.sglang import SGLangRules
from v4sim.engine.vllm import VLLMRules
from v4sim.errors import ConfigError

if TYPE_CHECKING:
    from v4sim.capacity import RankPools
    from v4sim.config import Deployment, RankLimits
    from v4sim.identity import Content
    from v4sim.model import ModelSpec
    from v4sim.prefix import PrefixIndex

SchedulerFactory = Callable[["Deployment", "RankLimits", "ModelSpec"], Scheduler]
RankFactory = Callable[[int, int], Rank]


def _sglang(deployment: Deployment, limits: RankLimits, spec: ModelSpec) -> Scheduler:
    engine = deployment.engine
    assert limits.max_prefill_tokens is not None
    return SGLangRules(
        page_tokens=limits.page_tokens,
        window_tokens=spec.sliding_window,
        chunk_tokens=limits.chunk_tokens,
        max_prefill_tokens=limits.max_prefill_tokens,
        max_running=limits.max_running,
        conservativeness=limits.conservativeness,
        clip_max_new_tokens=engine.clip_max_new_tokens,
        prefill_max_requests=engine.prefill_max_requests,
        prefill_decode_interval=engine.prefill_decode_interval,
        schedule_policy=engine.schedule_policy,
        retraction_policy=engine.retraction_policy,
        draft_alloc_tokens=limits.draft_tokens + 1 if limits.draft_tokens else 0,
        mixes=engine.mixed_chunk,
        late_results=engine.overlap,
        hash_lookahead_tokens=limits.hash_lookahead_tokens,
        keeps_output=not engine.strip_output_cache,
    )


def _vllm(deployment: Deployment, limits: RankLimits, spec: ModelSpec) -> Scheduler:
    engine = deployment.engine
    return VLLMRules(
        page_tokens=limits.page_tokens,
        max_batched_tokens=engine.max_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        long_prefill_token_threshold=engine.long_prefill_token_threshold,
        reserve_full_isl=engine.reserve_full_isl,
        watermark=engine.watermark,
        draft_tokens=limits.draft_tokens,
        drops_last_block=limits.drops_last_block,
        hash_lookahead_tokens=limits.hash_lookahead_tokens,
        prefill_interval=engine.prefill_schedule_interval,
        shares_cadence=deployment.parallel.attention_dp > 1,
        late_results=engine.async_scheduling,
        keeps_output=not engine.strip_output_cache,
    )


SCHEDULERS: dict[str, SchedulerFactory] = {"sglang": _sglang, "vllm": _vllm}


def make_scheduler(deployment: Deployment, limits: RankLimits, spec: ModelSpec) -> Scheduler:
    try:
        factory = SCHEDULERS[deployment.engine.kind]
    except KeyError:
        raise ConfigError(
            f"engine.kind {deployment.engine.kind!r} has no scheduler; "
            f"choose one of {', '.join(sorted(SCHEDULERS))}"
        ) from None
    return factory(deployment, limits, spec)


def make_engine(
    deployment: Deployment,
    limits: RankLimits,
    pools: RankPools,
    spec: ModelSpec,
    prefixes: PrefixIndex,
    content: Content,
    *,
    by_priority: bool,
) -> tuple[Scheduler, RankFactory]:
    """The rules of a deployment, and what makes a rank for them by (replica, index).

    `prefixes` index `content` by pages. `by_priority`: some call has a priority.
    """
    if deployment.engine.scheduler != "modelled":
        from v4sim.engine.native.build import make_native  # of no use to any other scheduler

        return make_native(deployment, limits, pools, spec, content, by_priority=by_priority)
    rules = make_scheduler(deployment, limits, spec)
    return rules, lambda replica, index: make_rank(replica, index, deployment, pools, spec, prefixes)


def make_rank(
    replica: int, index: int, deployment: Deployment, pools: RankPools, spec: ModelSpec, prefixes: PrefixIndex
) -> Rank:
    """One rank with its own cache owner. vLLM's single block pool evicts by page, SGLang's tree by node."""
    engine = deployment.engine
    is_vllm = engine.kind == "vllm"
    owner = CacheOwner(
        VLLMTree(prefixes) if is_vllm else SGLangTree(prefixes, keeps_leaves=engine.swa_veto != "strict"),
        HitPolicy(engine.swa_veto, engine.page_tokens, spec.sliding_window, spec.num_layers),
        kv_tokens=pools.kv_tokens,
        swa_tokens=pools.swa_tokens,
        request_slots=pools.request_slots,
        enabled=engine.prefix_cache,
        marks=WindowMarks(prefixes, pools.window_blocks_kept * pools.block_tokens)
        if engine.window_retention == "replay" and engine.swa_veto == "strict"
        else None,
    )
    return Rank(
        replica,
        index,
        owner,
        overhead_tokens=pools.window_blocks_decode * pools.block_tokens,
        keeps_windows=is_vllm,
        keyless_tokens=0 if is_vllm else prefixes.lookahead_tokens,
    )
