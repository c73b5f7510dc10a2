"""Choices that contradict each other, or that nothing would read: refused, with the way out.

Each rule is a function of the deployment that returns None or one sentence. Rules look at what was
given and, after `resolve`, at what the engine chose, so the same list runs twice.
"""

from __future__ import annotations

from collections.abc import Callable

from v4sim.config.deployment import Deployment, EngineSection, changed, foreign
from v4sim.config.native import native_scheduler
from v4sim.errors import ConfigError
from v4sim.model import ModelSpec
from v4sim.model import spec as model_spec
from v4sim.model.hardware import GpuSpec, gpu

Rule = Callable[[Deployment, ModelSpec, GpuSpec], str | None]
VERSIONS: dict[str, tuple[str, ...]] = {"sglang": ("0.5.23", "0.5.15"), "vllm": ("0.33", "0.29", "0.25")}


def check(deployment: Deployment, where: str) -> None:
    """Raise `ConfigError` for the first rule that the deployment breaks."""
    spec = model_spec(deployment.model.name)
    device = gpu(deployment.hardware.gpu)
    for rule in _RULES:
        message = rule(deployment, spec, device)
        if message is not None:
            raise ConfigError(f"{message} ({where})")


def _gpus(d: Deployment, spec: ModelSpec, device: GpuSpec) -> str | None:
    p = d.parallel
    need = d.gpus_per_replica * p.replicas
    if need != d.hardware.num_gpus:
        return (
            f"parallel needs attention_tp {p.attention_tp} x attention_dp {p.attention_dp} x replicas "
            f"{p.replicas} = {need} GPUs, hardware.num_gpus = {d.hardware.num_gpus}: make them equal."
        )
    if d.gpus_per_replica % p.ep:
        return (
            f"parallel.ep = {p.ep} does not divide the {d.gpus_per_replica} GPUs of a replica: "
            "choose a divisor (1 = each expert is cut over all of them)."
        )
    if spec.heads % p.attention_tp:
        return (
            f"parallel.attention_tp = {p.attention_tp} does not divide the {spec.heads} heads of {spec.name}."
        )
    if (spec.routed_experts + d.engine.redundant_experts) % p.ep:
        return (
            f"{spec.routed_experts} experts + engine.redundant_experts = {d.engine.redundant_experts} cannot "
            f"be spread evenly over parallel.ep = {p.ep} groups: choose redundant_experts so that they can."
        )
    if d.engine.redundant_experts and p.ep == 1:
        return "engine.redundant_experts needs expert parallelism: set parallel.ep above 1 or leave it 0."
    return None


def _model(d: Deployment, spec: ModelSpec, device: GpuSpec) -> str | None:
    m = d.model
    if m.max_context_tokens > spec.max_context_tokens:
        return (
            f"model.max_context_tokens = {m.max_context_tokens} is above the "
            f"{spec.max_context_tokens} tokens of {spec.name}: lower it."
        )
    if m.index_dtype is not None and m.index_dtype not in spec.index_bytes:
        return (
            f"model.index_dtype = {m.index_dtype!r}: the index keys of {spec.name} exist as "
            f"{' or '.join(spec.index_dtypes)} only."
        )
    if m.index_dtype == "fp4" and not device.has_fp4_index and "fp8" in spec.index_bytes:
        return (
            f"model.index_dtype = 'fp4' on {device.name}: FP4 index logits need a Blackwell GPU; "
            "use 'fp8' (132 bytes a key)."
        )
    if d.engine.engram == "host" and not spec.engram:
        return f"engine.engram = 'host' has no effect: {spec.name} has no n-gram tables; leave it out."
    if m.weights == "fp4" and device.arch == "hopper" and d.engine.moe_backend == "deepep":
        return (
            f"model.weights = 'fp4' on {device.name} runs as Marlin W4A16, and DeepEP's experts are FP8 "
            "there: set model.weights = 'fp8', or engine.moe_backend = 'marlin'."
        )
    return None


def _engine_options(d: Deployment, spec: ModelSpec, device: GpuSpec) -> str | None:
    e = d.engine
    absent = foreign(e.kind)
    for key in EngineSection.model_fields:
        if key in absent and key in e.model_fields_set:
            other = _COUNTERPART.get(key)
            hint = f"use engine.{other}" if other else "leave it out"
            return f"engine.{key} does not exist in {e.kind}: {hint}."
    if e.version is not None and e.scheduler == "modelled" and e.version not in VERSIONS[e.kind]:
        return (
            f"engine.version = {e.version!r}: the rules of {e.kind} are written for "
            f"{' and '.join(VERSIONS[e.kind])}; choose one of them."
        )
    if e.kind == "vllm" and spec.compressor.kind == "latent" and e.version in ("0.29", "0.25"):
        return f"engine.version = {e.version!r}: vLLM serves {spec.name} from 0.31 on; leave it out."
    if e.kind == "vllm" and changed(e, "prefill_schedule_interval") and e.version in ("0.29", "0.25"):
        return (
            f"engine.prefill_schedule_interval is an option of vllm 0.33: {e.version} prefills in every step."
        )
    if e.kind == "vllm" and e.schedule_policy == "lpm":
        return "engine.schedule_policy = 'lpm' does not exist in vllm (no cache-aware order): use 'fcfs'."
    if e.window_retention == "replay" and d.speculation.kind == "mtp" and e.version in ("0.29", "0.25"):
        return (
            f"engine.window_retention = 'replay' with MTP is known from vLLM 0.33 on: engine.version = "
            f"{e.version!r} drops matched blocks otherwise. Leave one of them out."
        )
    if e.schedule_policy == "lpm" and not e.prefix_cache:
        return "engine.schedule_policy = 'lpm' falls back to fcfs without a prefix cache: use 'fcfs'."
    if e.strip_output_cache and not e.prefix_cache:
        return "engine.strip_output_cache has no effect without engine.prefix_cache: leave one of them out."
    if changed(e, "prefill_delayer_max_passes") and not e.prefill_delayer:
        return "engine.prefill_delayer_max_passes has no effect while engine.prefill_delayer is off."
    if e.page_tokens % 128:
        return (
            f"engine.page_tokens = {e.page_tokens} must be a multiple of 128, the largest compression ratio."
        )
    return None


_COUNTERPART = {
    "chunked_prefill_tokens": "max_batched_tokens",
    "max_batched_tokens": "chunked_prefill_tokens",
    "max_running": "max_num_seqs",
    "max_num_seqs": "max_running",
    "overlap": "async_scheduling",
    "async_scheduling": "overlap",
}


def _speculation(d: Deployment, spec: ModelSpec, device: GpuSpec) -> str | None:
    s, e = d.speculation, d.engine
    if s.kind == "off":
        for key in ("draft_tokens", "adaptive", "adaptive_max_rows", "acceptance"):
            if getattr(s, key) != type(s).model_fields[key].default:
                return f"speculation.{key} has no effect while speculation.kind is 'off': set mtp or dspark."
        if not e.spec_blocks_mixed_dp:
            return "engine.spec_blocks_mixed_dp = false has no effect without speculation: leave it out."
        return None
    if s.kind not in spec.speculators:
        return (
            f"speculation.kind = {s.kind!r}: {spec.name} has a draft head for "
            f"{' and '.join(sorted(spec.speculators))} only."
        )
    if s.draft_tokens < 1:
        return f"speculation.kind = {s.kind!r} needs speculation.draft_tokens of 1 or more."
    if s.adaptive_max_rows != type(s).model_fields["adaptive_max_rows"].default and not s.adaptive:
        return "speculation.adaptive_max_rows has no effect while speculation.adaptive is off."
    if e.mixed_chunk:
        return "engine.mixed_chunk with speculation: prefill chunks never mix with verify steps; drop one."
    if not e.spec_blocks_mixed_dp and d.parallel.attention_dp == 1:
        return "engine.spec_blocks_mixed_dp = false has no effect with one DP rank: leave it out."
    return None


def _swa(d: Deployment, spec: ModelSpec, device: GpuSpec) -> str | None:
    e = d.engine
    if e.swa_veto == "strict":
        return None
    if not e.prefix_cache:
        return (
            f"engine.swa_veto = {e.swa_veto!r} has no effect without engine.prefix_cache: leave it 'strict'."
        )
    if e.swa_veto == "bounded_replay" and not spec.encoder_layers:
        return (
            f"engine.swa_veto = 'bounded_replay' is defined for the encoder/decoder split of V4.1, which "
            f"{spec.name} does not have: use 'recompute_window' or 'strict'."
        )
    if e.swa_veto == "bounded_replay" and e.kind == "sglang" and d.speculation.kind != "off":
        return "engine.swa_veto = 'bounded_replay' excludes speculation in sglang: switch one of them off."
    if e.swa_veto == "recompute_window" and e.kind == "vllm":
        return "engine.swa_veto = 'recompute_window' is an sglang option: use 'strict' with vllm."
    return None


def _cache(d: Deployment, spec: ModelSpec, device: GpuSpec) -> str | None:
    ids = d.cache.identity
    if ids and not d.engine.prefix_cache:
        return "cache.identity has no effect without engine.prefix_cache: leave one of them out."
    twice = [name for name in ids if ids.count(name) > 1]
    if twice:
        return f"cache.identity names {twice[0]} twice: name it once."
    return None


def _budgets(d: Deployment, spec: ModelSpec, device: GpuSpec) -> str | None:
    e, dp = d.engine, d.parallel.attention_dp
    if e.kind == "sglang":
        chunk = e.chunked_prefill_tokens
        if chunk is not None and chunk > 0 and chunk // dp < e.page_tokens:
            return (
                f"engine.chunked_prefill_tokens = {chunk} over {dp} DP ranks leaves {chunk // dp} tokens a "
                f"rank, less than one page of {e.page_tokens}: no prompt could advance. Raise it to "
                f"{e.page_tokens * dp} or more."
            )
        if e.max_running is not None and e.max_running < dp:
            return f"engine.max_running = {e.max_running} is below one request for each of the {dp} DP ranks."
        tokens = (e.max_running or 0) // dp * d.verify_width
        limit_key, limit = "engine.max_running", e.dispatch_tokens_per_rank
        if e.moe_backend == "megamoe" and chunk is not None and limit is not None and chunk // dp > limit:
            return (
                f"A prefill chunk of {chunk // dp} tokens a rank exceeds engine.dispatch_tokens_per_rank = "
                f"{limit} of the MegaMoE buffers: raise it or lower engine.chunked_prefill_tokens."
            )
    else:
        tokens = e.max_batched_tokens if e.moe_backend in ("megamoe", "deepep") else 0
        limit_key, limit = "engine.max_batched_tokens", e.dispatch_tokens_per_rank
        if e.max_batched_tokens < d.verify_width:
            return (
                f"engine.max_batched_tokens = {e.max_batched_tokens} is below the verify width "
                f"{d.verify_width}: no decode would fit a step."
            )
    if limit is not None and tokens > limit:
        return (
            f"A step of {tokens} tokens a rank ({limit_key}, times the verify width if any) exceeds "
            f"engine.dispatch_tokens_per_rank = {limit} of the MoE buffers: raise that or lower the other."
        )
    if e.moe_backend not in ("auto", "megamoe", "deepep") and e.dispatch_tokens_per_rank is not None:
        return (
            f"engine.dispatch_tokens_per_rank has no effect with moe_backend {e.moe_backend!r}: leave it out."
        )
    if e.moe_backend in ("deepep", "megamoe") and d.parallel.ep == 1:
        return f"engine.moe_backend = {e.moe_backend!r} dispatches tokens: it needs parallel.ep above 1."
    if e.moe_backend in ("megamoe", "flashinfer_mxfp4") and device.arch == "hopper":
        return f"engine.moe_backend = {e.moe_backend!r} needs a Blackwell GPU: use 'auto' on {device.name}."
    if e.moe_backend == "marlin" and device.arch != "hopper":
        return f"engine.moe_backend = 'marlin' is the FP4 path of Hopper: use 'auto' on {device.name}."
    return None


def _router(d: Deployment, spec: ModelSpec, device: GpuSpec) -> str | None:
    r = d.router
    users = {
        "cache_threshold": ("cache_aware",),
        "balance_abs": ("cache_aware",),
        "balance_rel": ("cache_aware",),
        "load_factor": ("rendezvous",),
        "load_signal": ("least_tokens", "cache_aware"),
        "signal_period_s": (
            "least_requests",
            "least_tokens",
            "front_ends",
            "sticky",
            "rendezvous",
            "cache_aware",
        ),
    }
    for key, policies in users.items():
        if getattr(r, key) != type(r).model_fields[key].default and r.policy not in policies:
            return f"router.{key} is read by {' and '.join(policies)} only, router.policy = {r.policy!r}."
    return None


def _hardware(d: Deployment, spec: ModelSpec, device: GpuSpec) -> str | None:
    h = d.hardware
    host = (
        ("h2d_gb_s", h.h2d_gb_s, device.host_link_gb_s),
        ("host_memory_gib", h.host_memory_gib, device.node_memory_gib(h.num_gpus)),
    )
    for key, given, known in host:
        if given is not None and given != known:
            return (
                f"hardware.{key} = {given:g} would not be read: no host tier is modelled yet. Leave it out."
            )
    if h.price_low is not None and h.price_high is not None and h.price_low > h.price_high:
        return f"hardware.price_low = {h.price_low} is above hardware.price_high = {h.price_high}: swap them."
    return None


_RULES: tuple[Rule, ...] = (
    _gpus,
    _model,
    _engine_options,
    native_scheduler,
    _speculation,
    _swa,
    _cache,
    _budgets,
    _router,
    _hardware,
)
