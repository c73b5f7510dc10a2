"""Experts and collectives: who sees which tokens, and what moves between GPUs.

The rules are those of sglang 0.5.15 (models/deepseek_v4.py, layers/dp_attention.py) and vllm 0.25.0
(models/deepseek_v4/nvidia/model.py); each test compares a part with the operations that it must be made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from v4sim.cost import Profile, RankLoad, StepCost
from v4sim.cost.base import PART_INDEX
from v4sim.cost.collectives import collective_line
from v4sim.model.hardware import gpu as gpu_spec

Compile = Callable[..., StepCost]
LAYERS = 43
HIDDEN_BYTES = 2 * 4096
CHUNK = RankLoad(0, 0, 0, ((8192, 0),))
IDLE = RankLoad(0, 0, 0)


def layer_us(parts: list[int], name: str) -> float:
    return parts[PART_INDEX[name]] / LAYERS / 1e3


def collective_us(profile: Profile, name: str, size: float) -> float:
    return collective_line(profile, profile.operation(name)).at(size) / 1e3


def test_with_vllm_megamoe_every_tp_rank_dispatches_the_tokens_of_its_group(compiled: Compile) -> None:
    def moe(tp: int, dp: int) -> float:
        cost = compiled(tp=tp, dp=dp, ep=8, engine="vllm", moe_backend="megamoe")
        return layer_us(cost.step([CHUNK] * dp, 1, "prefill"), "moe")

    assert moe(8, 1) == pytest.approx(moe(1, 8), rel=1e-6)
    assert moe(2, 4) == pytest.approx(moe(1, 8), rel=1e-6)


def test_sglang_splits_the_tokens_of_a_tp_group_before_it_dispatches(compiled: Compile) -> None:
    def moe(engine: str) -> float:
        option = {"chunked_prefill_tokens": 8192} if engine == "sglang" else {}
        cost = compiled(tp=8, dp=1, ep=8, engine=engine, moe_backend="megamoe", **option)
        return layer_us(cost.step([CHUNK], 1, "prefill"), "moe")

    assert moe("sglang") < moe("vllm") / 4


def test_vllm_megamoe_reduces_attention_and_shared_expert_and_gathers_nothing(
    compiled: Compile, profiles: Callable[[str], Profile]
) -> None:
    cost = compiled(tp=8, dp=1, ep=8, engine="vllm", moe_backend="megamoe")
    one = collective_us(profiles("b200"), "all_reduce.vllm.gpus8", 8192 * HIDDEN_BYTES)
    assert layer_us(cost.step([CHUNK], 1, "prefill"), "all_reduce") == pytest.approx(2 * one, rel=1e-6)
    assert not [row["op"] for row in cost.provenance() if row["op"].startswith("all_gather")]


@pytest.mark.parametrize(("ep", "behind"), [(1, "all_reduce.sglang.gpus4"), (4, "reduce_scatter.gpus4")])
def test_sglang_dp_attention_without_dispatch_concatenates_by_all_reduce(
    ep: int, behind: str, compiled: Compile, profiles: Callable[[str], Profile]
) -> None:
    cost = compiled(dp=4, ep=ep, moe_backend="flashinfer_mxfp4")
    profile = profiles("b200")
    prefill = cost.step([CHUNK, IDLE, IDLE, IDLE], 1, "prefill")
    wanted = sum(
        collective_us(profile, op, 8192 * HIDDEN_BYTES) for op in ("all_reduce.sglang.gpus4", behind)
    )
    assert layer_us(prefill, "all_reduce") == pytest.approx(wanted, rel=1e-6)
    decode = cost.step([RankLoad(64, 64_000, 1000), IDLE, IDLE, IDLE], 1, "decode")
    padded = 4 * 64 * HIDDEN_BYTES
    wanted = sum(collective_us(profile, op, padded) for op in ("all_gather.gpus4", behind))
    assert layer_us(decode, "all_reduce") == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("gpu", ["b200", "h100", "h200"])
@pytest.mark.parametrize(
    "operation", ["all_reduce.sglang", "all_reduce.vllm", "all_gather", "reduce_scatter"]
)
def test_large_collectives_of_one_node_run_near_link_speed(
    gpu: str, operation: str, profiles: Callable[[str], Profile]
) -> None:
    """0.4 to 0.9 of the link at the largest size: elements taken for bytes would read half of that."""
    line = collective_line(profiles(gpu), profiles(gpu).operation(f"{operation}.gpus8"))
    size = line.top
    sent = size if operation.startswith("all_reduce") else size * 7 / 8
    assert 0.4 < sent / line.at(size) / gpu_spec(gpu).nvlink_gb_s < 0.9


def test_bytes_that_were_measured_as_bytes_stay_what_they_are(profiles: Callable[[str], Profile]) -> None:
    profile = profiles("b200")
    operation = profile.operation("all_gather.gpus8")
    own = replace(profile.provenance_of(operation), source="v4calib run", kind="measured")
    measured = replace(profile, provenances={**profile.provenances, operation.provenance: own})
    assert collective_line(measured, operation).top * 2 == collective_line(profile, operation).top


def test_passes_outside_every_table_cost_their_bytes(
    compiled: Compile, profiles: Callable[[str], Profile]
) -> None:
    """Router, quantisation and sum of outputs: 12 bytes a hidden value and 8 a score; shared: 3 h + 9 I."""
    profile = profiles("b200")
    stream = profile.operation("hbm_stream")
    slower = replace(profile, operations={**profile.operations, "hbm_stream": stream.scaled(2.0)})
    choice = {"tp": 1, "dp": 1, "ep": 1, "moe_backend": "flashinfer_mxfp4"}
    before, after = (compiled(profile=p, **choice).step([CHUNK], 1, "prefill") for p in (profile, slower))
    us_byte = stream.term("per_byte")
    added = {name: layer_us(after, name) - layer_us(before, name) for name in ("moe", "shared_expert")}
    assert added["moe"] == pytest.approx(8192 * (11 * 4096 + 8 * 256) * us_byte, rel=1e-3)
    assert added["shared_expert"] == pytest.approx(8192 * (3 * 4096 + 9 * 2048) * us_byte, rel=1e-3)
