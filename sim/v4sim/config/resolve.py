"""What the engine would choose: every None of a deployment replaced by the engine's own default.

Rules with their source (repository paths as read in 2026): SGLang `arg_groups/memory_hook.py` (chunk and
graph sizes by GPU memory, reserved memory), `arg_groups/deepseek_v4_hook.py` (256 running requests, the
ratio of the windows),
`server_args.py` (division by the DP size, conservativeness x 0.3 under DP attention); vLLM
`engine/arg_utils.py` and `config/scheduler.py` (0.92 of the memory since 0.29, 0.9 before; the gate on
the whole prompt since 0.29). The SGLang numbers of the reserved-memory formula are MiB.

`resolve` is idempotent. `cpu_*` stay None: the engine constants of the cost model hold them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from v4sim.config.checks import check
from v4sim.config.deployment import Deployment
from v4sim.config.installed import installed_version
from v4sim.model import spec as model_spec
from v4sim.model.hardware import MIB, gpu
from v4sim.model.ops import deepep_buffer_bytes

DPA_CONSERVATIVENESS = 0.3
SWA_FULL_RATIO = 0.1


@dataclass(frozen=True, slots=True)
class RankLimits:
    """The scheduler's numbers for one DP rank, divided and rounded as the engine does it."""

    page_tokens: int
    chunk_tokens: int | None  # SGLang prefill chunk or vLLM token budget; None: no chunking
    max_prefill_tokens: int | None  # None: vLLM has no such cap
    max_running: int
    conservativeness: float
    graph_max_bs: int
    draft_tokens: int
    drops_last_block: bool = False  # of a hit, for the draft layers
    hash_lookahead_tokens: int = 0  # after each block, of which its draft KV depends


def sglang_chunk_tokens(memory_mib: float) -> int:
    """Default `chunked_prefill_size` by GPU memory: 8192 on H100 and H200, 16384 from B200 on."""
    gib = memory_mib / 1024
    return 2048 if gib < 20 else 4096 if gib < 60 else 8192 if gib < 160 else 16384


def sglang_graph_max_bs(memory_mib: float, tp_size: int) -> int:
    """Default largest batch of the decode CUDA graphs, by GPU memory and the server's --tp."""
    gib = memory_mib / 1024
    if gib < 20:
        return 8
    if gib < 35:
        return 48 if tp_size < 4 else 160
    if gib < 60:
        return 32 if tp_size < 4 else 160
    if gib < 160:
        return 256 if tp_size < 4 else 512
    return 512


def sglang_reserved_mib(deployment: Deployment, memory_mib: float) -> float:
    """Memory kept back from weights and pools: activations, graphs and communication buffers, in MiB.

    512 + 1.5 x chunk + 1024 x tp/8 + 2 x graph batch, + 3 x graph batch x dp under DP attention and half as
    much again above batch 300; at least 10 GiB on GPUs above 60 GiB. DeepEP buffers come on top.
    The chunk is the whole group's, as the formula runs before the division.
    """
    parallel, engine = deployment.parallel, deployment.engine
    chunk = engine.chunked_prefill_tokens or sglang_chunk_tokens(memory_mib)
    chunk = chunk if chunk > 0 else engine.max_prefill_tokens
    max_bs = engine.cuda_graph_max_bs or sglang_graph_max_bs(memory_mib, deployment.gpus_per_replica)
    reserved = 512 + 1.5 * chunk + 1024 * deployment.gpus_per_replica / 8 + 2 * max_bs
    if parallel.attention_dp > 1:
        reserved += 3 * max_bs * parallel.attention_dp
        if max_bs > 300:
            reserved += 1.5 * max_bs * parallel.attention_dp
    if memory_mib > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    return reserved


def resolve(deployment: Deployment) -> Deployment:
    """The deployment with every engine choice made; `ConfigError` if the choices contradict each other."""
    spec = model_spec(deployment.model.name)
    device = gpu(deployment.hardware.gpu)
    model, hardware, engine = deployment.model, deployment.hardware, deployment.engine
    sglang = engine.kind == "sglang"

    memory_mib = hardware.mem_gib * 1024 if hardware.mem_gib is not None else float(device.memory_mib)
    hardware_values: dict[str, Any] = {
        "price_per_gpu_hour": hardware.price_per_gpu_hour or device.price_per_hour,
        "price_low": hardware.price_low or hardware.price_per_gpu_hour or device.price_low,
        "price_high": hardware.price_high or hardware.price_per_gpu_hour or device.price_high,
        "h2d_gb_s": hardware.h2d_gb_s or device.host_link_gb_s,
        "host_memory_gib": hardware.host_memory_gib or device.node_memory_gib(hardware.num_gpus),
        "mem_gib": memory_mib / 1024,
    }

    index_default = "fp4" if device.has_fp4_index and not sglang else "fp8"
    index = model.index_dtype or (
        index_default if index_default in spec.index_bytes else spec.index_dtypes[0]
    )
    weights = model.weights or ("fp4" if device.fp4_tflops else "fp8")

    if engine.scheduler != "modelled":
        version = installed_version(engine.scheduler)
    else:
        version = engine.version or ("0.5.23" if sglang else "0.33")
    engine_values: dict[str, Any] = {
        "version": version,
        "moe_backend": _moe_backend(deployment, weights)
        if engine.moe_backend == "auto"
        else engine.moe_backend,
        "cuda_graph_max_bs": engine.cuda_graph_max_bs
        or sglang_graph_max_bs(memory_mib, deployment.gpus_per_replica),
        "front_ends": engine.front_ends or (1 if sglang else deployment.parallel.attention_dp),
    }
    engine_values["index_tile_gib"] = engine.index_tile_gib
    if engine.index_tile_gib is None:
        engine_values["index_tile_gib"] = 2.0 if spec.index.pool_tokens else 0.0 if sglang else 0.5
    engine_values["dispatch_tokens_per_rank"] = engine.dispatch_tokens_per_rank or _dispatch_tokens(
        engine_values["moe_backend"], engine.max_batched_tokens if not sglang else 0
    )
    if sglang:
        deepep_mib = 0.0
        if engine_values["moe_backend"] == "deepep":
            deepep_mib = deepep_buffer_bytes(spec, engine_values["dispatch_tokens_per_rank"]) / MIB
        chunk = engine.chunked_prefill_tokens
        chunk = sglang_chunk_tokens(memory_mib) if chunk is None else chunk
        engine_values["chunked_prefill_tokens"] = chunk
        if engine.swa_full_ratio is None and not (spec.compressor.kind == "latent" and chunk > 0):
            engine_values["swa_full_ratio"] = SWA_FULL_RATIO
        engine_values["max_running"] = engine.max_running or 256
        engine_values["mem_fraction"] = engine.mem_fraction or (
            1.0 - (sglang_reserved_mib(deployment, memory_mib) + deepep_mib) / memory_mib
        )
    else:
        old = version.startswith("0.25")
        engine_values["mem_fraction"] = engine.mem_fraction or (0.9 if old else 0.92)
        if "reserve_full_isl" not in engine.model_fields_set:
            engine_values["reserve_full_isl"] = not old
        if engine.scheduler == "modelled":
            recent = version.startswith("0.33")
            engine_values["window_retention"] = engine.window_retention or ("replay" if recent else "all")

    resolved = deployment.model_copy(
        update={
            "model": model.model_copy(update={"index_dtype": index, "weights": weights}),
            "hardware": hardware.model_copy(update=hardware_values),
            "engine": engine.model_copy(update=engine_values),
        }
    )
    check(resolved, "after the engine's own choices")
    return resolved


def rank_limits(deployment: Deployment) -> RankLimits:
    """What one rank's scheduler works with. Takes a resolved deployment or resolves it."""
    resolved = resolve(deployment)
    engine, dp = resolved.engine, resolved.parallel.attention_dp
    draft = resolved.verify_width - 1
    assert engine.cuda_graph_max_bs is not None
    if engine.kind == "vllm":
        # MTP layers read the token after the one they stand at; V4 has one of them.
        mtp = resolved.speculation.kind == "mtp"
        old = engine.version in ("0.29", "0.25")
        return RankLimits(
            page_tokens=engine.page_tokens,
            chunk_tokens=engine.max_batched_tokens,
            max_prefill_tokens=None,
            max_running=engine.max_num_seqs,
            conservativeness=0.0,
            graph_max_bs=engine.cuda_graph_max_bs,
            draft_tokens=draft,
            drops_last_block=mtp and old,
            hash_lookahead_tokens=1 if mtp and not old else 0,
        )
    assert engine.chunked_prefill_tokens is not None
    assert engine.max_running is not None
    chunk = engine.chunked_prefill_tokens
    return RankLimits(
        page_tokens=engine.page_tokens,
        chunk_tokens=chunk // dp if chunk > 0 else None,
        max_prefill_tokens=engine.max_prefill_tokens,
        max_running=engine.max_running // dp,
        conservativeness=engine.conservativeness * (DPA_CONSERVATIVENESS if dp > 1 else 1.0),
        graph_max_bs=engine.cuda_graph_max_bs,
        draft_tokens=draft,
        hash_lookahead_tokens=1 if resolved.speculation.kind == "mtp" else 0,
    )


def _moe_backend(deployment: Deployment, weights: str) -> str:
    """What the recipes run: the published cookbook cells of both engines."""
    device = gpu(deployment.hardware.gpu)
    if device.arch == "hopper":
        if weights == "fp4":
            return "marlin"
        return "deepep" if deployment.parallel.ep > 1 else "triton"
    if deployment.parallel.ep == 1:
        return "flashinfer_mxfp4"
    if deployment.engine.kind == "sglang" and deployment.speculation.kind != "off":
        return "deepep"
    return "megamoe"


def _dispatch_tokens(backend: str, budget: int) -> int | None:
    """Tokens per rank that the dispatch buffers hold in the recipes; None where nothing is dispatched."""
    if backend == "deepep":
        return max(1024, budget)
    if backend == "megamoe":
        return max(8320, budget)
    return None


def device_memory_bytes(deployment: Deployment) -> int:
    """Device memory of one GPU of a resolved deployment."""
    assert deployment.hardware.mem_gib is not None
    return round(deployment.hardware.mem_gib * 1024) * MIB
