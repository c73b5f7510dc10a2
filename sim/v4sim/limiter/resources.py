"""What can be short, each as one change of a scenario: more of it, and of nothing else.

    kernels      operations of the profile last 1/1.1 of their time, by family; `gpu` is all that run on the
                 GPU itself. A table of times does not say whether bandwidth or arithmetic bounds an entry, so
                 "10 % more HBM bandwidth" is not asked for; attention or experts 10 % faster is.
    links        collectives, dispatch and the links between GPUs
    host         CPU time per scheduler step (launches outside graphs too), and before a call is queued
    pools        KV tokens, sliding-window tokens and request slots of a rank. The other pools keep their
                 size: the memory is given, not taken from elsewhere
    step budget  prompt tokens of a step, with the buffers that must hold them
    ranks        a tenth more ranks do not exist, so each rank gets a tenth less of the load

Whole pages, slots and sessions cannot grow by exactly a tenth: each change says what it is. A resource that
a scenario does not have, or that an option fixes, is `Unasked` with the reason.
Leaves out: options (a policy is not an amount) and what a host tier would add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from v4sim.cost.engine_constants import cpu_step_us
from v4sim.errors import ConfigError
from v4sim.scenario import Scenario
from v4sim.simulate import front_end

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.cost.profile import Profile

ATTENTION = (
    "csa_decode",
    "csa_prefill",
    "csa_tail",
    "hca_context",
    "hca_decode",
    "hca_prefill",
    "hca_saturated",
)
INDEX = ("index_scan", "index_scan_floor", "index_scan_prefill", "topk_decode", "topk_prefill", "topk_rate")
EXPERTS = ("moe", "megamoe", "shared_expert", "hbm_stream")
OTHERS = ("mhc", "lm_head", "mtp_projection")
LINKS = ("all_gather", "all_reduce", "reduce_scatter", "deepep_ll", "deepep_normal", "ep_link")
LAUNCHES = ("eager_launch",)


@dataclass(frozen=True, slots=True)
class Variant:
    """The scenario with more of one resource, and the change in words."""

    scenario: Scenario
    change: str


@dataclass(frozen=True, slots=True)
class Unasked:
    """Why a resource cannot be larger here."""

    reason: str


Apply = Callable[[Scenario, float], Variant | Unasked]


@dataclass(frozen=True, slots=True)
class Resource:
    """`more(scenario, step)` has 1 + step times as much of it."""

    name: str
    title: str
    more: Apply


def resources(names: Sequence[str]) -> tuple[Resource, ...]:
    """The resources of these names, all of them for none; in the order of `RESOURCES`."""
    known = {resource.name: resource for resource in RESOURCES}
    for name in names:
        if name not in known:
            raise ConfigError(f"{name!r} is not a resource; choose from {', '.join(known)}.")
    return tuple(resource for resource in RESOURCES if not names or resource.name in names)


def _kernels(*families: str) -> Apply:
    def more(scenario: Scenario, step: float) -> Variant | Unasked:
        profile = faster(scenario.profile, families, 1.0 + step)
        return Variant(replace(scenario, profile=profile), f"times ÷ {1.0 + step:.4g}")

    return more


def faster(profile: Profile, families: Sequence[str], factor: float) -> Profile:
    """The profile with the times of these operations divided by `factor`; shares of others stay."""
    chosen = {
        name: operation.scaled(1.0 / factor)
        for name, operation in profile.operations.items()
        if operation.unit != "share" and name.partition(".")[0] in families
    }
    return replace(profile, operations={**profile.operations, **chosen})


def _host_step(scenario: Scenario, step: float) -> Variant | Unasked:
    deployment = scenario.deployment
    before = cpu_step_us(deployment.engine, deployment.parallel.attention_dp)
    if not before:
        return Unasked("engine.cpu_step_us is 0")
    after = before / (1.0 + step)
    profile = faster(scenario.profile, LAUNCHES, 1.0 + step)
    own_us = deployment.engine.cpu_launch_us
    engine = _engine(
        deployment, cpu_step_us=after, cpu_launch_us=None if own_us is None else own_us / (1.0 + step)
    )
    changed = replace(scenario, profile=profile, deployment=engine)
    return Variant(changed, f"{before:,.0f} to {after:,.0f} µs a step, launches as well")


def _front_end(scenario: Scenario, step: float) -> Variant | Unasked:
    request_ns, token_us = front_end(scenario.deployment)
    if not request_ns and not token_us:
        return Unasked("engine.cpu_request_us and engine.cpu_cached_token_us are 0")
    after = token_us / (1.0 + step)
    engine = _engine(
        scenario.deployment,
        cpu_request_us=request_ns / 1e3 / (1.0 + step),
        cpu_cached_token_us=after,
    )
    return Variant(replace(scenario, deployment=engine), f"{token_us:.3g} to {after:.3g} µs a prompt token")


def _kv_pool(scenario: Scenario, step: float) -> Variant | Unasked:
    pools, page = scenario.pools, scenario.deployment.engine.page_tokens
    kv_tokens = _pages(pools.kv_tokens, step, page)
    grown = replace(pools, kv_tokens=kv_tokens)
    if scenario.deployment.engine.kind == "vllm":  # one pool of blocks: windows live in it too
        more_blocks = (kv_tokens - pools.kv_tokens) // page
        grown = replace(grown, swa_tokens=kv_tokens, num_blocks=pools.num_blocks + more_blocks)
    return Variant(replace(scenario, pools=grown), f"{pools.kv_tokens:,} to {kv_tokens:,} tokens a rank")


def _swa_pool(scenario: Scenario, step: float) -> Variant | Unasked:
    if scenario.deployment.engine.kind == "vllm":
        return Unasked("vLLM keeps windows in the blocks of the KV pool")
    pools = scenario.pools
    tokens = _pages(pools.swa_tokens, step, scenario.deployment.engine.page_tokens)
    grown = replace(scenario, pools=replace(pools, swa_tokens=tokens))
    return Variant(grown, f"{pools.swa_tokens:,} to {tokens:,} tokens a rank")


def _slots(scenario: Scenario, step: float) -> Variant | Unasked:
    deployment, pools = scenario.deployment, scenario.pools
    before = pools.request_slots
    after = max(before + 1, round(before * (1.0 + step)))
    if deployment.engine.kind == "vllm":
        changed = _engine(deployment, max_num_seqs=after)
    else:
        changed = _engine(deployment, max_running=after * deployment.parallel.attention_dp)
    grown = replace(scenario, deployment=changed, pools=replace(pools, request_slots=after))
    return Variant(grown, f"{before:,} to {after:,} requests a rank")


def _chunk(scenario: Scenario, step: float) -> Variant | Unasked:
    deployment = scenario.deployment
    engine, dp = deployment.engine, deployment.parallel.attention_dp
    if engine.kind == "vllm":
        before, after = engine.max_batched_tokens, _pages(engine.max_batched_tokens, step, engine.page_tokens)
        changes: dict[str, Any] = {"max_batched_tokens": after}
    else:
        chunk = engine.chunked_prefill_tokens or 0
        if chunk <= 0:
            return Unasked("prompts are not cut into chunks")
        before = chunk // dp
        after = _pages(before, step, engine.page_tokens)
        most = _pages(engine.max_prefill_tokens, step, engine.page_tokens)
        changes = {"chunked_prefill_tokens": after * dp, "max_prefill_tokens": most}
    if engine.dispatch_tokens_per_rank is not None:
        changes["dispatch_tokens_per_rank"] = max(engine.dispatch_tokens_per_rank, after)
    grown = replace(scenario, deployment=_engine(deployment, **changes))
    return Variant(grown, f"{before:,} to {after:,} tokens a step and rank")


def _ranks(scenario: Scenario, step: float) -> Variant | Unasked:
    workload = scenario.workload
    if workload.sessions is not None:
        fewer = round(workload.sessions / (1.0 + step))
        if fewer in (0, workload.sessions):
            return Unasked(f"{workload.sessions} sessions cannot be shared out more thinly")
        lighter = replace(workload, sessions=fewer)
        return Variant(replace(scenario, workload=lighter), f"{workload.sessions} to {fewer} sessions alive")
    return Unasked("sessions come at times of their own: compare deployments instead")


def _pages(tokens: int, step: float, page_tokens: int) -> int:
    """The nearest whole pages, at least one page more."""
    return max(round(tokens * (1.0 + step) / page_tokens), tokens // page_tokens + 1) * page_tokens


def _engine(deployment: Deployment, **changes: Any) -> Deployment:
    return deployment.model_copy(update={"engine": deployment.engine.model_copy(update=changes)})


RESOURCES: tuple[Resource, ...] = (
    Resource("gpu", "Kernels, all of them", _kernels(*ATTENTION, *INDEX, *EXPERTS, *OTHERS)),
    Resource("attention", "Attention kernels", _kernels(*ATTENTION)),
    Resource("index", "Index scan and top-k", _kernels(*INDEX)),
    Resource("experts", "Expert kernels", _kernels(*EXPERTS)),
    Resource("links", "Links between GPUs", _kernels(*LINKS)),
    Resource("host_step", "Host, steps and launches", _host_step),
    Resource("front_end", "Host, before the queue", _front_end),
    Resource("kv_pool", "KV pool", _kv_pool),
    Resource("swa_pool", "Sliding-window pool", _swa_pool),
    Resource("slots", "Request slots", _slots),
    Resource("chunk", "Prefill tokens of a step", _chunk),
    Resource("ranks", "Ranks, as less load on each", _ranks),
)
