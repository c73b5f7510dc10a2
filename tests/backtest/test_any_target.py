"""Whatever the schema allows is predicted or refused with a reason, and the usual deployments are predicted.

Random targets combine every field of the schema, sensible or not; nothing may break, and no number may be
missing without a reason. The matrix is what people run: for it a refusal is a failure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from v4sim.backtest.run import backtest
from v4sim.backtest.schema import TargetFile, parse_targets

Entry = Callable[..., dict[str, Any]]

METRICS = (
    *(("ttft_ms", "p50"), ("ttft_ms", "p99"), ("tpot_ms", "mean"), ("itl_ms", "p95"), ("e2e_ms", "p50")),
    *(("total_tok_s_per_gpu", "mean"), ("output_tok_s", "mean"), ("requests_s", "mean")),
    *(("decode_tok_s", "p50"), ("verify_step_ms", "mean"), ("turn_wall_800tok_ms", "p50")),
    *(("kv_tokens_per_replica", "boot log"), ("max_concurrency_1m", "boot log")),
    *(("decode_tok_s_ratio_16k_over_4k", "ratio"), ("ttft_ms", "p1000"), ("gpu_power_w", "mean")),
)


def maybe(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([None, *values])


@st.composite
def targets(draw: st.DrawFn) -> dict[str, Any]:
    tp, dp = draw(st.sampled_from([(1, 1), (4, 1), (8, 1), (1, 8), (2, 4), (1, 4), (3, 2)]))
    layout = draw(st.sampled_from([f"tp{tp}xdp{dp}", f"dp{dp}", f"tp{tp}", "pp2", None]))
    at = maybe({"context_tokens": 3000}, {"concurrency": 2}, {"context_label": "4K"}, {"batch": 3})
    metrics = [
        {"name": name, "stat": stat, "value": 1.0, "low": 1.0, "high": 1.0, "at": draw(at)}
        for name, stat in draw(st.lists(st.sampled_from(METRICS), min_size=1, max_size=4, unique=True))
    ]
    uniform = {"isl": "uniform[1,4000]", "osl": "uniform[1,30]"}
    lengths = maybe(uniform, {"isl": "fixed[2000]", "osl": "fixed"}, {"isl": "zipf", "osl": None})
    kinds = ("closed_loop_fixed", "open_loop_poisson", "single", "warm_turn", "agent_trace", "batch")
    together = "2 repetitions; requests of one start together"
    return {
        "id": "any",
        "model": draw(st.sampled_from(["v4-flash", "v4-flash", "v4-pro", "v4.1-flash", "v5"])),
        "engine": draw(
            st.sampled_from(["sglang 0.5.15", "sglang", "vllm 0.25.0", "vllm v0.33", "trtllm 1.0", ""])
        ),
        "gpu": draw(st.sampled_from(["h100", "h200", "b200", "b300", "gb200", "gb300", "mi355x"])),
        "num_gpus": draw(st.sampled_from([tp * dp, tp * dp, 2 * tp * dp, 1, 7])),
        "topology": {
            "attention": layout,
            "tp": draw(maybe(tp, tp * dp)),
            "dp": draw(maybe(dp)),
            "ep": draw(maybe(1, tp * dp, 3)),
            "replicas": draw(st.sampled_from([1, 1, 2])),
        },
        "moe_backend": draw(
            maybe("auto", "deepep", "megamoe", "marlin", "flashinfer_mxfp4", "triton", "cutlass")
        ),
        "index_dtype": draw(maybe("fp4", "fp8", "unknown", "int4")),
        "weights": draw(maybe("fp4", "fp8", "nvfp4", "bf16")),
        "chunked_prefill_tokens": draw(maybe(-1, 2048, 8192)),
        "max_batched_tokens": draw(maybe(2048)),
        "max_running": draw(maybe(2, 256)),
        "mem_fraction": draw(maybe(0.3, 0.9)),
        "swa_ratio": draw(maybe(0.2)),
        "spec": {
            "kind": draw(st.sampled_from(["none", "mtp", "dspark", "medusa"])),
            "steps": draw(maybe(0, 1, 3)),
            "draft_tokens": draw(maybe(2, 4)),
            "acceptance_length": draw(maybe(1.0, 1.9, 9.0)),
        },
        "cache": {"prefix_cache": draw(maybe(True, False)), "host_tier_gib_per_rank": draw(maybe(0, 64))},
        "workload": {
            "kind": draw(st.sampled_from(kinds)),
            "isl": draw(maybe(1, 900, 9000)),
            "osl": draw(maybe(1, 12)),
            "concurrency": draw(maybe(0, 1, 3)),
            "num_requests": draw(maybe(0, 1, 6)),
            "request_rate": draw(maybe(0.5, 50.0)),
            "reuse": draw(maybe(0, 0.9, 1.0)),
            "length_model": draw(lengths),
            "osl_mean": draw(maybe(9.0, 40.0)),
            "osl_p90": draw(maybe(30.0)),
            "cached_tokens": draw(maybe(512, 100_000)),
            "new_tokens": draw(maybe(80, 100_000)),
            "max_model_len": draw(maybe(256, 16_384)),
            "notes": draw(st.sampled_from(["", together, "bench_serving 'random'"])),
        },
        "engine_flags": draw(maybe(["--schedule-policy lpm"], ["--enable-mixed-chunk", "--nonsense 3"])),
        "metrics": metrics,
    }


@given(targets())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_number_is_predicted_or_has_a_reason(data: dict[str, Any]) -> None:
    found = backtest(_file(data), seeds=1)
    assert len(found.replayed) + len(found.refused) == 1
    assert all(refusal.reason.strip() for refusal in found.refused)
    for row in found.rows:
        if row.predicted is None:
            assert row.reason.strip()
        else:
            assert math.isfinite(row.predicted)
            assert row.predicted >= 0
    assert found.summary()["coverage"] is None or 0 <= found.summary()["coverage"] <= 1


@pytest.mark.parametrize("gpu", ["h100", "h200", "b200", "b300", "gb200", "gb300"])
@pytest.mark.parametrize("model", ["v4-flash", "v4-pro", "v4.1-flash"])
@pytest.mark.parametrize("engine", ["sglang 0.5.15", "vllm 0.25.0"])
def test_what_people_run_is_predicted(entry: Entry, gpu: str, model: str, engine: str) -> None:
    """Tensor and data parallel on eight GPUs, with and without speculation."""
    hopper = gpu.startswith("h")
    draft = "dspark" if model == "v4.1-flash" else "mtp"
    refused = []
    for layout, ep in (("tp8", 1), ("dp8", 8), ("tp2xdp4", 8)):
        for spec in (
            {"kind": "none"},
            {"kind": draft, "steps": 1, "draft_tokens": 2 if "sg" in engine else 1},
        ):
            data = entry(
                model=model,
                engine=engine,
                gpu=gpu,
                num_gpus=8,
                topology={"attention": layout, "tp": 8, "dp": 1, "ep": ep},
                weights="fp4",
                moe_backend="deepep" if ep > 1 and not hopper else None,
                spec=spec,
                workload={"isl": 2000, "osl": 8, "concurrency": 2, "num_requests": 4},
                metrics=[
                    {"name": name, "stat": "mean", "value": 1.0, "low": 1.0, "high": 1.0}
                    for name in ("ttft_ms", "tpot_ms", "total_tok_s_per_gpu")
                ],
            )
            found = backtest(_file(data), seeds=1)
            refused += [f"{layout} {spec['kind']}: {refusal.reason}" for refusal in found.refused]
            assert all(row.predicted or row.reason for row in found.rows)
    # What does not fit a node is told from what has no price; V4-Flash fits all of them.
    assert [reason for reason in refused if "the weights of" not in reason] == []
    assert refused == [] or model != "v4-flash"


def _file(data: dict[str, Any]) -> TargetFile:
    return parse_targets(json.dumps({"schema": 1, "targets": [data]}), "any.json")
