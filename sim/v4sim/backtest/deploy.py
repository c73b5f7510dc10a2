"""A target as a deployment: what its source states is set, the rest is the engine's own choice, and said.

Flags are read as their engine means them: SGLang divides its chunk and its running requests by the DP
size, vLLM's are per rank (`v4sim.config.resolve` does the division). What this simulator has no rule for
is refused with the reason (`ConfigError`); what it can only approximate is listed in `assumed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from v4sim.backtest.flags import apply_flags
from v4sim.backtest.schema import Speculation, Target
from v4sim.capacity import pools
from v4sim.config import Deployment, from_dict, resolve
from v4sim.config.resolve import sglang_chunk_tokens
from v4sim.errors import CapacityError, ConfigError
from v4sim.model import spec as model_spec
from v4sim.model.hardware import gpu as gpu_spec

_LAYOUT = re.compile(r"(tp|dp)(\d+)")
_WEIGHTS = {"fp4": "fp4", "mxfp4": "fp4", "nvfp4": "fp4", "marlin-w4a16": "fp4", "w4a16": "fp4", "fp8": "fp8"}
_BACKENDS = (
    ("deepep", "deepep"),
    ("mega", "megamoe"),
    ("marlin", "marlin"),
    ("triton", "triton"),
    ("flashinfer", "flashinfer_mxfp4"),
    ("trtllm", "flashinfer_mxfp4"),
)
_DISPATCHING = ("deepep", "megamoe")
_DEEPEP_TOKENS, _MEGAMOE_TOKENS = 1024, 8320  # the recipes' dispatch buffers, per rank
_CONTEXT_STEP = 65_536
_VLLM_COUNTS_S = 0.1  # the DP coordinator publishes its counts this often


@dataclass(frozen=True, slots=True)
class Deployed:
    """A resolved deployment and what was assumed to get there."""

    deployment: Deployment
    assumed: tuple[str, ...]


def deploy(target: Target, longest_tokens: int = 0) -> Deployed:
    """`longest_tokens`: the longest history of the workload, which the context limit must admit."""
    assumed: list[str] = []
    kind, version = _engine(target.engine, assumed)
    if kind == "vllm" and version != "0.33" and model_spec(target.model).compressor.kind == "latent":
        version = "0.33"
        assumed.append(f"the rules of vllm 0.33 for {target.engine!r}: {target.model} is served from 0.31 on")
    tp, dp = _layout(target, kind, assumed)
    hopper = gpu_spec(target.gpu).arch == "hopper"
    backend = _backend(target, kind, hopper, assumed)
    replicas = target.topology.replicas
    if replicas == 1 and target.num_gpus % (tp * dp) == 0 and target.num_gpus > tp * dp:
        replicas = target.num_gpus // (tp * dp)
        assumed.append(f"{replicas} replicas, so that all {target.num_gpus} GPUs are used")
    engine: dict[str, Any] = {"kind": kind, "version": version, "moe_backend": backend}
    data: dict[str, Any] = {
        "name": target.id,
        "model": {"name": target.model, "weights": _weights(target, assumed)},
        "hardware": {"gpu": target.gpu, "num_gpus": target.num_gpus},
        "parallel": {
            "attention_tp": tp,
            "attention_dp": dp,
            "ep": _experts(target, tp * dp, backend, assumed),
            "replicas": replicas,
        },
        "engine": engine,
        "speculation": _speculation(target.spec, kind, assumed),
        "router": _router(target, kind, dp * replicas),
    }
    if target.index_dtype in ("fp4", "fp8"):
        data["model"]["index_dtype"] = target.index_dtype
    elif target.index_dtype not in (None, "unknown"):
        raise ConfigError(f"index_dtype {target.index_dtype!r} is none of fp4, fp8, unknown.")
    if target.mem_fraction is not None:
        engine["mem_fraction"] = target.mem_fraction
    if target.cache.prefix_cache is False:
        engine["prefix_cache"] = False
    if target.cache.host_tier_gib_per_rank:
        assumed.append("no host tier: what leaves the device is computed again")
    if kind == "sglang":
        engine |= _given(
            chunked_prefill_tokens=target.chunked_prefill_tokens,
            max_running=target.max_running,
            swa_full_ratio=target.swa_ratio,
        )
    else:
        chunk = target.chunked_prefill_tokens or 0
        budget = target.max_batched_tokens or (chunk if chunk > 0 else None)
        engine |= _given(max_batched_tokens=budget, max_num_seqs=target.max_running)
    if hopper and backend == "deepep" and data["model"]["weights"] == "fp4":
        data["model"]["weights"] = "fp8"
        assumed.append(
            "FP4 experts turned into FP8 when they are loaded: Hopper has no FP4 path behind DeepEP"
        )
    flagged, notes = dict(engine), list(assumed)
    apply_flags(target.engine_flags or (), flagged, notes)
    try:
        return _fitting(_buffered(data, flagged, notes), target, longest_tokens, notes)
    except ConfigError as error:
        if flagged == engine:
            raise
        # Flags for what this engine or layout lacks are without effect there, too.
        assumed.append(f"no effect of the flags {', '.join(target.engine_flags or ())} ({error})")
        return _fitting(_buffered(data, engine, assumed), target, longest_tokens, assumed)


def _buffered(data: dict[str, Any], engine: dict[str, Any], assumed: list[str]) -> dict[str, Any]:
    """The deployment's data with these engine options, and MoE buffers that hold what they send."""
    whole = {**data, "engine": engine}
    needed = _dispatch_tokens(whole)
    if needed is not None:
        engine["dispatch_tokens_per_rank"] = needed
        assumed.append(f"MoE buffers for {needed} tokens a rank")
    return {**whole, "engine": {key: value for key, value in engine.items() if value is not None}}


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _fitting(data: dict[str, Any], target: Target, longest_tokens: int, assumed: list[str]) -> Deployed:
    """The deployment. It was measured, so it fits: what is not stated gives way until it does here."""
    limit = model_spec(target.model).max_context_tokens
    if longest_tokens >= limit:
        raise ConfigError(
            f"a history of {longest_tokens} tokens does not fit {target.model}'s context of {limit}"
        )
    if target.workload.max_model_len is not None:
        data["model"]["max_context_tokens"] = min(target.workload.max_model_len, limit)
    first: CapacityError | None = None
    for changes in _ways_to_fit(target, longest_tokens, limit):
        changed = {section: values | changes.get(section, {}) for section, values in _sections(data)}
        try:
            deployment = resolve(from_dict({**data, **changed}, target.id))
            pools(deployment, model_spec(target.model))
        except CapacityError as error:
            first = first or error
            continue
        words = [f"{key} {value}" for values in changes.values() for key, value in values.items()]
        if words:
            assumed.append(f"{', '.join(words)}, because the engine's own choice does not fit")
        return Deployed(deployment, tuple(assumed))
    assert first is not None
    raise first


def _sections(data: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(key, value) for key, value in data.items() if isinstance(value, dict)]


def _ways_to_fit(target: Target, longest_tokens: int, limit: int) -> Iterator[dict[str, dict[str, Any]]]:
    """Changes to try in turn, smallest first; nothing that the source states is touched."""
    memory: list[dict[str, Any]] = [{}] if target.mem_fraction else [{}, {"mem_fraction": 0.95}]
    latent = model_spec(target.model).compressor.kind == "latent"
    if latent and target.engine.startswith("sglang") and target.swa_ratio is None:
        memory.append({**memory[-1], "swa_full_ratio": 0.1})  # instead of windows for all that may run
    weights: list[dict[str, Any]] = [{}]
    if target.weights is None:
        weights.append({"weights": "fp4"})
    shorter = (longest_tokens // _CONTEXT_STEP + 1) * _CONTEXT_STEP
    lengths: list[dict[str, Any]] = [{}]
    if target.workload.max_model_len is None and shorter < limit:
        lengths.append({"max_context_tokens": shorter})
    for form in weights:
        for length in lengths:
            for engine in memory:
                model = form | length
                yield {**({"model": model} if model else {}), **({"engine": engine} if engine else {})}


def _dispatch_tokens(data: dict[str, Any]) -> int | None:
    """Tokens a rank that SGLang's MoE buffers must hold, where the recipes' size is too small."""
    engine, parallel = data["engine"], data["parallel"]
    backend = engine["moe_backend"]
    if engine["kind"] != "sglang" or parallel["ep"] == 1 or engine.get("dispatch_tokens_per_rank"):
        return None
    dp = parallel["attention_dp"]
    rows = engine.get("max_running", 256) // dp * (1 + data["speculation"].get("draft_tokens", 0))
    if backend == "deepep":
        return rows if rows > _DEEPEP_TOKENS else None
    if backend == "auto" and gpu_spec(data["hardware"]["gpu"]).arch == "hopper":
        return None
    chunk = engine.get("chunked_prefill_tokens") or sglang_chunk_tokens(
        gpu_spec(data["hardware"]["gpu"]).memory_mib
    )
    need = max(chunk // dp, rows)
    return need if need > _MEGAMOE_TOKENS else None


def _engine(text: str, assumed: list[str]) -> tuple[str, str | None]:
    words = text.lower().split()
    kind = words[0] if words else ""
    if kind == "sglang":
        if "0.5.15" not in text:
            assumed.append(f"the rules of sglang 0.5.15 for {text!r}")
        return kind, "0.5.15"
    if kind == "vllm":
        found = re.match(r"vllm v?(\d+)\.(\d+)", text.lower())
        if found is None:
            assumed.append(f"the rules of vllm 0.25 for {text!r}")
            return kind, "0.25"
        given = int(found[1]), int(found[2])
        version = "0.33" if given >= (0, 33) else "0.29" if given >= (0, 29) else "0.25"
        if f"{found[1]}.{found[2]}" != version:
            assumed.append(f"the rules of vllm {version} for {text!r}")
        return kind, version
    raise ConfigError(f"engine {text!r}: there are rules for sglang and vllm only.")


def _layout(target: Target, kind: str, assumed: list[str]) -> tuple[int, int]:
    """(attention TP, attention DP) of one replica."""
    topology = target.topology
    text = topology.attention
    if text is None:
        if topology.tp is None:
            raise ConfigError("the topology is not stated (topology.attention and topology.tp are null).")
        tp, dp = topology.tp, topology.dp or 1
        tp = max(tp // dp, 1) if kind == "sglang" else tp
        assumed.append(f"attention tp{tp}xdp{dp}, from the engine's flags")
        return tp, dp
    parts = text.lower().replace("+", "x").split("x")
    found: dict[str, int] = {}
    for part in parts:
        match = _LAYOUT.fullmatch(part)
        if match is None:
            raise ConfigError(f"topology.attention {text!r}: {part!r} is neither tpN nor dpN.")
        found[match[1]] = int(match[2])
    return found.get("tp", 1), found.get("dp", 1)


def _experts(target: Target, gpus: int, backend: str, assumed: list[str]) -> int:
    ep = target.topology.ep
    if ep is not None:
        return ep
    ep = gpus if backend in _DISPATCHING else 1
    assumed.append(f"ep {ep}")
    return ep


def _weights(target: Target, assumed: list[str]) -> str | None:
    text = target.weights
    if text is None:
        return None
    try:
        found = _WEIGHTS[text.lower()]
    except KeyError:
        raise ConfigError(f"weights {text!r}: there are prices for {', '.join(sorted(_WEIGHTS))}.") from None
    if text.lower() == "nvfp4":
        assumed.append("NVFP4 experts priced by the MXFP4 tables")
    return found


def _backend(target: Target, kind: str, hopper: bool, assumed: list[str]) -> str:
    text = (target.moe_backend or "auto").lower()
    if text.startswith("auto"):
        # vLLM runs MegaMoE where it is asked for by name and never by itself (0.25 DeepseekV4MoE).
        return "flashinfer_mxfp4" if kind == "vllm" and not hopper else "auto"
    for word, name in _BACKENDS:
        if word in text:
            if name == "flashinfer_mxfp4" and hopper:
                assumed.append(f"Marlin experts for {target.moe_backend!r} on {target.gpu}")
                return "auto"
            return name
    assumed.append(f"the recipe's MoE backend for {target.moe_backend!r}")
    return "auto"


def _speculation(spec: Speculation, kind: str, assumed: list[str]) -> dict[str, Any]:
    if spec.kind in ("none", "off"):
        return {}
    if spec.kind not in ("mtp", "dspark"):
        raise ConfigError(f"spec.kind {spec.kind!r}: there are mtp, dspark and none.")
    drafts = spec.steps
    if not drafts:
        # SGLang counts the token before the drafts as a draft token of the verify window.
        drafts = (spec.draft_tokens or 0) - (1 if kind == "sglang" and spec.kind == "mtp" else 0)
    if drafts < 1:
        raise ConfigError(f"spec.kind {spec.kind!r} needs spec.steps or spec.draft_tokens.")
    found: dict[str, Any] = {"kind": spec.kind, "draft_tokens": drafts}
    if spec.acceptance_length is not None:
        found["acceptance"] = f"constant:{constant_rate(spec.acceptance_length, drafts):.6f}"
    else:
        assumed.append(f"the published acceptance of V4-Pro {spec.kind} on SPEED-Bench")
    return found


def constant_rate(length: float, drafts: int) -> float:
    """The chance per draft, the same at each position, whose mean accepted length is `length`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        reached = sum(middle**i for i in range(drafts + 1))
        low, high = (middle, high) if reached < length else (low, middle)
    return high


def _router(target: Target, kind: str, ranks: int) -> dict[str, Any]:
    """Sessions that re-send their prompt are pinned to their rank; else the engine's own balancing."""
    if ranks == 1:
        return {}
    if target.workload.kind.startswith(("warm_turn", "agent_trace")):
        return {"policy": "sticky"}
    if kind == "sglang":
        return {"policy": "round_robin"}
    return {"policy": "front_ends", "signal_period_s": _VLLM_COUNTS_S}
