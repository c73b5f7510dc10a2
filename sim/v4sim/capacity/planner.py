"""From a deployment to the pools of one rank, with a ledger of every byte of a GPU.

SGLang: a static share of the memory (`mem_fraction`) holds weights, compressor state of the request
slots, and the KV and window pools, whose sizes follow from the *priced* bytes per token; the ledger
shows the *allocated* pages. The rest of the memory holds what a step needs. Reports from operators show
that the index logits are not in the engine's reserve (a 1M-token prompt runs out of memory
mid-request); here they are, so what does not fit outside the static share shrinks the cache.

vLLM: `mem_fraction` caps everything; what weights and a step leave is one pool of blocks.

Raises `CapacityError` when weights, or one prompt of max_context_tokens, do not fit.
"""

from __future__ import annotations

from v4sim.capacity.base import LedgerLine, RankPools
from v4sim.capacity.weights import weight_bytes
from v4sim.capacity.workspace import (
    FRAMEWORK_BYTES,
    activation_bytes,
    dispatch_buffer_bytes,
    graph_bytes,
    scratch_bytes,
)
from v4sim.config.deployment import Deployment
from v4sim.config.resolve import RankLimits, device_memory_bytes, rank_limits, resolve
from v4sim.errors import CapacityError
from v4sim.model import ModelSpec
from v4sim.model.layout import SglangLayout, VllmLayout
from v4sim.model.layout.boundary import align_down

GIB = 1 << 30


def pools(deployment: Deployment, spec: ModelSpec) -> RankPools:
    """The pools of one rank of a deployment (resolved here if it is not)."""
    resolved = resolve(deployment)
    limits = rank_limits(resolved)
    fixed = [
        LedgerLine(name, size, "shapes and formats of the weights")
        for name, size in weight_bytes(resolved, spec).items()
    ]
    step = [
        LedgerLine("framework", FRAMEWORK_BYTES, "aiconfigurator other_mem: context, libraries, NCCL"),
        LedgerLine("cuda graphs", graph_bytes(limits), "SGLang reserve formula: 2 MiB a graph row"),
        LedgerLine("activations", activation_bytes(resolved, spec, limits), "shapes of the largest step"),
        LedgerLine("index scratch", scratch_bytes(resolved, spec, limits), "rows x context logits"),
        LedgerLine("dispatch buffers", dispatch_buffer_bytes(resolved, spec), "MoE backend"),
    ]
    if resolved.engine.kind == "vllm":
        return _vllm(resolved, spec, limits, fixed, step)
    return _sglang(resolved, spec, limits, fixed, step)


def _sglang(
    d: Deployment, spec: ModelSpec, limits: RankLimits, fixed: list[LedgerLine], step: list[LedgerLine]
) -> RankPools:
    engine, total = d.engine, device_memory_bytes(d)
    assert engine.mem_fraction is not None
    assert d.model.index_dtype is not None
    assert engine.version is not None
    layout = SglangLayout(spec, d.model.index_dtype, engine.page_tokens, limits.draft_tokens, engine.version)
    draft = _draft_layers(d, spec)
    outside = total - int(engine.mem_fraction * total)
    static = total - max(outside, _sum(step))
    _weights_must_fit(d, spec, fixed, step, static)
    slots = limits.max_running
    state = layout.state_bytes(slots)
    budget = static - _sum(fixed) - state

    page, ratio, cap = engine.page_tokens, engine.swa_full_ratio or 0.0, 0
    if engine.swa_full_ratio is None:  # windows for the calls that may run
        assert limits.chunk_tokens is not None
        cap = engine.swa_tokens_per_rank or layout.cap_swa_tokens(slots, limits.chunk_tokens, engine.overlap)
        budget -= int(cap * layout.bytes_per_swa_token(draft))
    priced = layout.bytes_per_full_token(ratio, draft)
    swa_page_bytes = layout.swa_page_bytes + draft * layout.swa_layer_page_bytes
    reported = max(align_down(int(budget / priced), page), 0)
    kv_tokens = engine.kv_tokens_per_rank or reported
    swa_tokens = engine.swa_tokens_per_rank or cap or int(kv_tokens * ratio)
    kv_tokens, swa_tokens = align_down(kv_tokens, page), align_down(swa_tokens, page)
    kv, swa = _pages(kv_tokens, page, layout.page_bytes), _pages(swa_tokens, page, swa_page_bytes)
    room = total - _sum(fixed) - _sum(step) - state
    derived = engine.kv_tokens_per_rank is None and engine.swa_tokens_per_rank is None
    if kv + swa > room and derived and room > 0:
        # Padded pages take more than was priced, and nothing outside the static share is left to give.
        for_pages = room - _pages(cap, page, swa_page_bytes)
        kv_tokens = max(int(for_pages / (layout.page_bytes + ratio * swa_page_bytes)) * page, 0)
        swa_tokens = cap or align_down(int(kv_tokens * ratio), page)
        kv, swa = _pages(kv_tokens, page, layout.page_bytes), _pages(swa_tokens, page, swa_page_bytes)
    if kv + swa > room:
        raise CapacityError(
            f"{d.name}: pools of {kv_tokens} KV and {swa_tokens} window tokens a rank take "
            f"{_gib(kv + swa)}, and weights, state and workspaces leave {_gib(max(room, 0))} of the "
            f"{_gib(total)} of a {d.hardware.gpu}. Lower engine.kv_tokens_per_rank or engine.max_running, or "
            "spread the model over more GPUs."
        )
    _prompt_must_fit(d, kv_tokens)
    window_need = page + min(limits.chunk_tokens or page, page)
    if swa_tokens < window_need:
        raise CapacityError(
            f"{d.name}: the window pool holds {swa_tokens} tokens and one request needs {window_need} to "
            "advance. Raise engine.swa_tokens_per_rank (or engine.swa_full_ratio)."
        )
    rest = room - kv - swa
    reserve = min(rest, max(outside - _sum(step), 0))
    ledger = (
        *fixed,
        *step,
        LedgerLine("state", state, f"{slots} request slots of compressor rings"),
        LedgerLine("kv", kv, "padded pages of main entries and index keys"),
        LedgerLine("swa", swa, "padded window pages with their compressor state"),
        LedgerLine("reserved", reserve, "outside mem_fraction, unused"),
        LedgerLine("free", rest - reserve, "inside mem_fraction, unused"),
    )
    return RankPools(
        kv_tokens=kv_tokens,
        swa_tokens=swa_tokens,
        request_slots=slots,
        state_bytes_per_request=layout.state_bytes_per_slot,
        ledger=ledger,
        reported_tokens=reported,
    )


def _vllm(
    d: Deployment, spec: ModelSpec, limits: RankLimits, fixed: list[LedgerLine], step: list[LedgerLine]
) -> RankPools:
    engine, total = d.engine, device_memory_bytes(d)
    assert engine.mem_fraction is not None
    assert d.model.index_dtype is not None
    assert limits.chunk_tokens is not None
    assert engine.version is not None
    layout = VllmLayout(
        spec,
        d.model.index_dtype,
        engine.page_tokens,
        limits.draft_tokens,
        _draft_layers(d, spec),
        engine.version,
    )
    usable = int(engine.mem_fraction * total)
    _weights_must_fit(d, spec, fixed, step, usable - _sum(step))
    room = usable - _sum(fixed) - _sum(step)
    page, steps = engine.page_tokens, layout.steps_in_flight(engine.async_scheduling)
    budget = steps * limits.chunk_tokens
    window_step = layout.window_blocks(budget)
    window_decode = layout.held_window_blocks(steps * d.verify_width + limits.draft_tokens)
    num_blocks = max(room // layout.block_bytes, 0)
    need = layout.request_blocks(d.model.max_context_tokens, budget)
    concurrency = num_blocks / layout.reported_blocks(d.model.max_context_tokens, budget)
    reported = int(concurrency * d.model.max_context_tokens)
    if engine.kv_tokens_per_rank is not None:
        num_blocks = engine.kv_tokens_per_rank // page + window_step
        if num_blocks * layout.block_bytes > room:
            raise CapacityError(
                f"{d.name}: {engine.kv_tokens_per_rank} KV tokens a rank take "
                f"{_gib(num_blocks * layout.block_bytes)} with the windows of a full step, and weights and "
                f"workspaces leave {_gib(max(room, 0))} of engine.mem_fraction = {engine.mem_fraction}. "
                "Lower engine.kv_tokens_per_rank, or spread the model over more GPUs."
            )
    elif num_blocks < need:
        raise CapacityError(
            f"{d.name}: one prompt of {d.model.max_context_tokens} tokens needs {need} blocks and the pool "
            f"has {num_blocks}. Lower model.max_context_tokens, raise engine.mem_fraction, or use more GPUs."
        )
    # The windows of full prefill steps are always in use while anything is prefilled.
    kv_tokens = (num_blocks - window_step) * page
    kv = num_blocks * layout.block_bytes
    ledger = (
        *fixed,
        *step,
        LedgerLine("kv", kv, "blocks of the hybrid cache manager, windows and state included"),
        LedgerLine("reserved", total - usable, "outside mem_fraction"),
        LedgerLine("free", room - kv, "inside mem_fraction, unused"),
    )
    return RankPools(
        kv_tokens=kv_tokens,
        swa_tokens=kv_tokens,
        request_slots=limits.max_running,
        state_bytes_per_request=0,
        ledger=ledger,
        reported_tokens=reported,
        block_tokens=page,
        num_blocks=num_blocks,
        window_blocks_decode=window_decode,
        window_blocks_step=window_step,
        window_blocks_kept=layout.kept_window_blocks,
    )


def _draft_layers(d: Deployment, spec: ModelSpec) -> int:
    return spec.speculators[d.speculation.kind].layers if d.speculation.kind != "off" else 0


def _sum(lines: list[LedgerLine]) -> int:
    return sum(line.bytes for line in lines)


def _pages(tokens: int, page_tokens: int, page_bytes: int) -> int:
    return tokens // page_tokens * page_bytes


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"


def _weights_must_fit(
    d: Deployment, spec: ModelSpec, fixed: list[LedgerLine], step: list[LedgerLine], room: int
) -> None:
    weights = _sum(fixed)
    if weights < room:
        return
    raise CapacityError(
        f"{d.name}: the weights of {spec.name} ({d.model.weights} experts) take {_gib(weights)} on each "
        f"{d.hardware.gpu}, and engine.mem_fraction = {d.engine.mem_fraction:.3f} with {_gib(_sum(step))} "
        f"for a step leaves {_gib(max(room, 0))} of {_gib(device_memory_bytes(d))}. Use more GPUs (a "
        "larger parallel.attention_tp or parallel.ep), smaller weights, or a shorter prefill chunk."
    )


def _prompt_must_fit(d: Deployment, kv_tokens: int) -> None:
    if d.engine.kv_tokens_per_rank is None and kv_tokens < d.model.max_context_tokens:
        raise CapacityError(
            f"{d.name}: one prompt of {d.model.max_context_tokens} tokens does not fit a rank, whose pool "
            f"holds {kv_tokens}. Lower model.max_context_tokens or engine.max_running, or use more GPUs a "
            "replica."
        )
