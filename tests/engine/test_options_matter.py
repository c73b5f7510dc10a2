"""Every key of a deployment changes what a run reports, or is refused (dynamo#13517).

One crowded trace, two runs that differ in one key, on the built-in profile. The table below covers all
keys: a new key without a line here fails. A comparison is of the whole result tree (latencies, parts,
pools, ranks, cost, headline) and of all columns of all calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from v4sim.config.errors import legal_keys
from v4sim.errors import ConfigError
from v4traces import CallRow

SGLANG = "4xB200 V4-Flash DPA4+EP4 sglang"
VLLM = "8xB200 V4-Flash DP8 vllm"
V41 = "8xB200 V4.1-Flash DP8+EP8 sglang"
MTP = ["speculation.kind=mtp", "speculation.draft_tokens=2"]
ONE_RANK = ["parallel.attention_dp=1", "parallel.attention_tp=4", "parallel.ep=1"]
FEW_WINDOWS = [*ONE_RANK, "engine.kv_tokens_per_rank=49152"]
SHORT = [*FEW_WINDOWS, "engine.swa_tokens_per_rank=40960"]
FOUR_PAGES = [
    *ONE_RANK,
    "engine.kv_tokens_per_rank=1024",
    "engine.swa_tokens_per_rank=40960",
    "engine.clip_max_new_tokens=0",
]
SHORT_VLLM = ["engine.kv_tokens_per_rank=49152"]
GPUS_8 = ["hardware.num_gpus=8"]


class Case(NamedTuple):
    """Two runs: `base`, and `base` with `change` (several keys only where GPUs must add up)."""

    change: str
    base: Sequence[str] = ()
    preset: str = SGLANG
    copies: int = 1
    trace: str = "crowd"


# A label; it stands in the manifest and the headline.
NO_EFFECT = {"name"}
# Refused until a host tier reads them.
REFUSED = {
    "hardware.h2d_gb_s": Case("hardware.h2d_gb_s=20"),
    "hardware.host_memory_gib": Case("hardware.host_memory_gib=500"),
    # Where no vLLM is installed; `tests/native` has the rest.
    "engine.scheduler": Case("engine.scheduler=vllm-native", [], VLLM),
    # A prompt above it is.
    "model.max_context_tokens": Case("model.max_context_tokens=32768"),
}
CASES = {
    "cache.identity": Case('cache.identity=["snapshot_id"]'),
    "model.name": Case("model.name=v4.1-flash"),
    "model.index_dtype": Case("model.index_dtype=fp4"),
    "model.weights": Case("model.weights=fp8"),
    "hardware.gpu": Case("hardware.gpu=b300"),
    "hardware.num_gpus": Case("hardware.num_gpus=8 parallel.replicas=2"),
    "hardware.price_per_gpu_hour": Case("hardware.price_per_gpu_hour=1.5"),
    "hardware.price_low": Case("hardware.price_low=0.5"),
    "hardware.price_high": Case("hardware.price_high=99"),
    "hardware.mem_gib": Case("hardware.mem_gib=150"),
    "parallel.attention_tp": Case(
        "parallel.attention_tp=2 parallel.replicas=1", [*GPUS_8, "parallel.replicas=2"]
    ),
    "parallel.attention_dp": Case("parallel.attention_dp=2 parallel.replicas=2", ["parallel.ep=1"]),
    "parallel.ep": Case("parallel.ep=1"),
    "parallel.replicas": Case(
        "parallel.replicas=2 parallel.attention_tp=1", [*GPUS_8, "parallel.attention_tp=2"]
    ),
    "engine.kind": Case("engine.kind=vllm"),
    "engine.version": Case("engine.version=0.25", [], VLLM),
    "engine.page_tokens": Case("engine.page_tokens=512"),
    "engine.mem_fraction": Case("engine.mem_fraction=0.8"),
    "engine.swa_full_ratio": Case("engine.swa_full_ratio=0.2"),
    "engine.kv_tokens_per_rank": Case("engine.kv_tokens_per_rank=65536"),
    "engine.swa_tokens_per_rank": Case("engine.swa_tokens_per_rank=6144"),
    "engine.prefix_cache": Case("engine.prefix_cache=false"),
    "engine.strip_output_cache": Case("engine.strip_output_cache=true"),
    "engine.swa_veto": Case("engine.swa_veto=recompute_window", FEW_WINDOWS),
    "engine.cuda_graph_max_bs": Case("engine.cuda_graph_max_bs=2"),
    "engine.chunked_prefill_tokens": Case("engine.chunked_prefill_tokens=4096"),
    "engine.max_prefill_tokens": Case("engine.max_prefill_tokens=1024"),
    "engine.max_running": Case("engine.max_running=4"),
    "engine.prefill_max_requests": Case("engine.prefill_max_requests=1"),
    "engine.overlap": Case("engine.overlap=false"),
    "engine.mixed_chunk": Case("engine.mixed_chunk=true"),
    "engine.prefill_decode_interval": Case("engine.prefill_decode_interval=2"),
    "engine.conservativeness": Case("engine.conservativeness=3.0", SHORT),
    "engine.clip_max_new_tokens": Case("engine.clip_max_new_tokens=1", SHORT),
    "engine.retraction_policy": Case(
        "engine.retraction_policy=priority", [*FOUR_PAGES, "engine.cpu_cached_token_us=0"], trace="pair"
    ),
    "engine.prefill_delayer": Case("engine.prefill_delayer=true"),
    "engine.prefill_delayer_max_passes": Case(
        "engine.prefill_delayer_max_passes=2", ["engine.prefill_delayer=true"]
    ),
    "engine.spec_blocks_mixed_dp": Case("engine.spec_blocks_mixed_dp=false", MTP),
    "engine.max_batched_tokens": Case("engine.max_batched_tokens=1024", [], VLLM),
    "engine.long_prefill_token_threshold": Case("engine.long_prefill_token_threshold=512", [], VLLM),
    "engine.max_num_seqs": Case("engine.max_num_seqs=1", [], VLLM),
    "engine.reserve_full_isl": Case("engine.reserve_full_isl=false", SHORT_VLLM, VLLM),
    "engine.watermark": Case("engine.watermark=0.3", SHORT_VLLM, VLLM),
    "engine.prefill_schedule_interval": Case("engine.prefill_schedule_interval=8", [], VLLM),
    "engine.async_scheduling": Case("engine.async_scheduling=false", [], VLLM),
    "engine.window_retention": Case("engine.window_retention=all", [], VLLM),
    "engine.schedule_policy": Case("engine.schedule_policy=lpm", ["engine.max_running=4"]),
    "engine.default_max_new_tokens": Case("engine.default_max_new_tokens=64", SHORT),
    "engine.moe_backend": Case("engine.moe_backend=deepep"),
    "engine.dispatch_tokens_per_rank": Case("engine.dispatch_tokens_per_rank=16384", [], VLLM),
    "engine.redundant_experts": Case("engine.redundant_experts=32"),
    "engine.index_tile_gib": Case("engine.index_tile_gib=4", [], VLLM),
    "engine.engram": Case("engine.engram=host", [], V41),
    "engine.front_ends": Case("engine.front_ends=4"),
    "engine.cpu_step_us": Case("engine.cpu_step_us=50000"),
    "engine.cpu_launch_us": Case("engine.cpu_launch_us=70"),
    "engine.cpu_cached_token_us": Case("engine.cpu_cached_token_us=5"),
    "engine.cpu_request_us": Case("engine.cpu_request_us=90000"),
    "speculation.kind": Case(
        "speculation.kind=dspark", ["speculation.kind=mtp", "speculation.draft_tokens=2"]
    ),
    "speculation.draft_tokens": Case("speculation.draft_tokens=3", MTP),
    "speculation.acceptance": Case("speculation.acceptance=constant:0.3", MTP),
    "speculation.adaptive": Case("speculation.adaptive=true", [*MTP, *ONE_RANK], copies=3),
    "speculation.adaptive_max_rows": Case(
        "speculation.adaptive_max_rows=1", [*MTP, "speculation.adaptive=true"]
    ),
    "router.policy": Case("router.policy=sticky"),
    "router.cache_threshold": Case("router.cache_threshold=0.99", ["router.policy=cache_aware"]),
    "router.balance_abs": Case("router.balance_abs=1", ["router.policy=cache_aware"]),
    "router.balance_rel": Case("router.balance_rel=5", ["router.policy=cache_aware", "router.balance_abs=1"]),
    "router.load_factor": Case("router.load_factor=1.0", ["router.policy=rendezvous"]),
    "router.signal_period_s": Case("router.signal_period_s=30", ["router.policy=least_requests"]),
    "router.load_signal": Case("router.load_signal=resident_tokens", ["router.policy=least_tokens"]),
    "objective.ttft_p95_s": Case("objective.ttft_p95_s=0.001"),
    "objective.itl_p95_ms": Case("objective.itl_p95_ms=0.1"),
    "objective.itl_form": Case(
        "objective.itl_form=burst", [*MTP, "speculation.acceptance=constant:1.0", "objective.itl_p95_ms=10"]
    ),
}


def crowd() -> list[CallRow]:
    """Fourteen sessions of three turns, forks and long prompts among them, answers of all lengths."""
    rng = np.random.default_rng(11)
    rows: list[CallRow] = []
    for s in range(14):
        prompt, before = int(rng.integers(2000, 9000)), None
        if s % 5 == 2:
            prompt += 30_000
        for turn in range(3):
            output = int(rng.integers(20, 400))
            fork = s % 4 == 3 and turn == 0
            parent = rows[0] if fork else before
            shared = min(parent.prompt_tokens, prompt) if parent else 0
            whole = parent is not None and not fork and shared == parent.prompt_tokens
            row = CallRow(
                session_id=f"s{s}",
                turn=turn,
                parent_session=parent.session_id if parent else None,
                parent_turn=parent.turn if parent else None,
                shared_tokens=shared,
                shared_output_tokens=parent.output_tokens if whole and parent else None,
                prompt_tokens=prompt,
                output_tokens=output,
                max_output_tokens=output + 200 if s % 2 else None,
                delay_s=float(rng.uniform(0, 0.4)) if turn else 0.0,
                trigger="tool_result" if turn else "user",
                priority=s % 3,
                snapshot_id=f"v{turn}",
            )
            rows.append(row)
            before = row
            prompt += output + int(rng.integers(50, 1500))
    return rows


def pair() -> list[CallRow]:
    """Two answers that outgrow four pages; one has priority."""
    return [
        CallRow(session_id=f"s{s}", turn=0, prompt_tokens=250 - 150 * s, output_tokens=300, priority=1 - s)
        for s in range(2)
    ]


@pytest.fixture(scope="module")
def report(make_trace: Callable[..., Any]) -> Callable[..., str]:
    from v4sim import config, simulate
    from v4sim.cost import compile_cost, load_profile
    from v4sim.metrics import summarise
    from v4sim.model import spec
    from v4sim.workload import WorkloadOptions

    tables = {"crowd": make_trace(crowd()), "pair": make_trace(pair())}
    profiles: dict[str, Any] = {}
    seen: dict[tuple[str, ...], str] = {}

    def run(case: Case, sets: Sequence[str]) -> str:
        key = (case.preset, case.trace, str(case.copies), *sets)
        if key not in seen:
            deployment = config.resolve(config.load(case.preset, list(sets)))
            model, gpu = spec(deployment.model.name), deployment.hardware.gpu
            if gpu not in profiles:
                profiles[gpu] = load_profile(gpu)
            cost = compile_cost(profiles[gpu], deployment, model)
            table = tables[case.trace]
            workload = WorkloadOptions(sessions=14 * case.copies, copies=case.copies)
            result = simulate.run(table, deployment, cost, workload, spec=model)
            tree = summarise(result, table, deployment, cost, workload=workload).tree
            numbers = {name: tree[name] for name in ("headline", "window", "steady", "full", "series")}
            columns = {name: np.asarray(column).tolist() for name, column in result.calls.items()}
            seen[key] = json.dumps([numbers, columns], sort_keys=True, default=np.ndarray.tolist)
        return seen[key]

    return run


def test_every_key_has_its_line() -> None:
    assert set(legal_keys()) == set(CASES) | set(REFUSED) | NO_EFFECT


@pytest.mark.parametrize("key", sorted(CASES))
def test_the_option_changes_the_result(report: Callable[..., str], key: str) -> None:
    case = CASES[key]
    assert report(case, [*case.base, *case.change.split()]) != report(case, case.base)


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_the_option_is_refused(report: Callable[..., str], key: str) -> None:
    with pytest.raises(ConfigError, match=key.split(".")[1]):
        report(REFUSED[key], [REFUSED[key].change])
