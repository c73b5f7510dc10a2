"""Targets as deployments: engine conventions, refusals, and what was assumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.backtest.deploy import constant_rate, deploy
from v4sim.backtest.flags import apply_flags
from v4sim.backtest.schema import Target
from v4sim.config import rank_limits
from v4sim.errors import CapacityError, ConfigError

Make = Callable[..., Target]


@pytest.mark.parametrize(
    ("attention", "gpus", "expected"),
    [("tp8", 8, (8, 1)), ("dp4", 4, (1, 4)), ("tp4xdp2", 8, (4, 2)), ("dp2xtp4", 8, (4, 2))],
)
def test_the_layout_is_that_of_attention(
    target: Make, attention: str, gpus: int, expected: tuple[int, int]
) -> None:
    found = deploy(target(num_gpus=gpus, topology={"attention": attention, "ep": 1})).deployment.parallel
    assert (found.attention_tp, found.attention_dp) == expected


def test_more_gpus_than_a_replica_needs_are_replicas(target: Make) -> None:
    found = deploy(target(num_gpus=8))
    assert found.deployment.parallel.replicas == 2
    assert any("2 replicas" in text for text in found.assumed)


def test_flags_stand_in_for_a_layout_that_is_not_given(target: Make) -> None:
    sglang = deploy(
        target(engine="sglang 0.5.15", topology={"attention": None, "tp": 4, "dp": 4, "ep": 1})
    ).deployment
    assert (sglang.parallel.attention_tp, sglang.parallel.attention_dp) == (1, 4)


def test_sglang_divides_its_flags_and_vllm_does_not(target: Make) -> None:
    changes: dict[str, Any] = {
        "topology": {"attention": "dp4", "ep": 1},
        "chunked_prefill_tokens": 8192,
        "max_batched_tokens": 4096,
        "max_running": 128,
    }
    sglang = rank_limits(deploy(target(engine="sglang 0.5.15", **changes)).deployment)
    vllm = rank_limits(deploy(target(**changes)).deployment)
    assert (sglang.chunk_tokens, sglang.max_running) == (2048, 32)
    assert (vllm.chunk_tokens, vllm.max_running) == (4096, 128)


def test_three_draft_steps_verify_four_tokens(target: Make) -> None:
    spec = {"kind": "mtp", "steps": 3, "draft_tokens": 4, "acceptance_length": 2.5}
    found = deploy(target(engine="sglang 0.5.15", spec=spec)).deployment
    assert found.verify_width == 4
    without_steps = {**spec, "steps": None}
    assert deploy(target(engine="sglang 0.5.15", spec=without_steps)).deployment.verify_width == 4


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"engine": "trtllm 1.3"}, "sglang and vllm only"),
        ({"topology": {"attention": None, "tp": None}}, "topology is not stated"),
        ({"topology": {"attention": "tp4xpp2"}}, "'pp2' is neither"),
        ({"weights": "int3"}, "weights 'int3'"),
        ({"index_dtype": "bf16"}, "index_dtype 'bf16'"),
        ({"spec": {"kind": "medusa"}}, "spec.kind 'medusa'"),
        ({"spec": {"kind": "mtp"}}, r"needs spec\.steps"),
        ({"num_gpus": 3}, "make them equal"),
        ({"gpu": "tpu"}, "tpu"),
        ({"model": "v3"}, "v3"),
    ],
)
def test_what_there_is_no_rule_for_is_refused(target: Make, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        deploy(target(**changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # The engine's default share leaves no room for Pro's weights, the flags of the day did.
        (
            {"model": "v4-pro", "engine": "sglang 0.5.15", "moe_backend": "deepep", "ep": 8},
            "mem_fraction 0.95",
        ),
        # Pro in FP8 is larger than eight H200: what was measured there is the FP4 checkpoint.
        ({"model": "v4-pro", "gpu": "h200", "weights": None}, "weights fp4"),
        ({"gpu": "h200", "weights": "fp8", "num_gpus": 4, "mem_fraction": 0.59}, "max_context_tokens"),
    ],
)
def test_what_was_measured_fits(target: Make, changes: dict[str, Any], said: str) -> None:
    changes = {"num_gpus": 8, **changes}
    ep, gpus = changes.pop("ep", 1), changes["num_gpus"]
    layout = {"attention": f"dp{gpus}" if ep > 1 else f"tp{gpus}", "ep": ep}
    found = deploy(target(topology=layout, **changes), longest_tokens=2000)
    assert len(found.assumed) == 1
    assert said in found.assumed[0]


def test_what_the_source_states_never_gives_way(target: Make) -> None:
    full = target(gpu="h200", weights="fp8", mem_fraction=0.3)
    with pytest.raises(CapacityError, match="weights"):
        deploy(full)


def test_flags_set_options_and_unknown_ones_are_named() -> None:
    engine: dict[str, Any] = {}
    assumed: list[str] = []
    apply_flags(
        [
            "--cuda-graph-max-bs 128",
            "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=256",
            "--enable-mixed-chunk",
            "--disable-flashinfer-autotune",
            "--max-running-requests many",
        ],
        engine,
        assumed,
    )
    assert engine == {"cuda_graph_max_bs": 128, "dispatch_tokens_per_rank": 256, "mixed_chunk": True}
    assert len(assumed) == 2


@given(st.integers(1, 8), st.floats(0.0, 1.0))
def test_the_constant_rate_has_the_stated_length(drafts: int, rate: float) -> None:
    length = sum(rate**i for i in range(drafts + 1))
    found = constant_rate(length, drafts)
    assert sum(found**i for i in range(drafts + 1)) == pytest.approx(length, abs=1e-9)


@pytest.mark.parametrize(
    ("changes", "backend"),
    [
        ({"engine": "vllm 0.29.0"}, "flashinfer_mxfp4"),
        ({"engine": "vllm 0.29.0", "moe_backend": "deep_gemm_mega_moe"}, "megamoe"),
        ({"engine": "sglang 0.5.15"}, "megamoe"),
    ],
)
def test_vllm_runs_megamoe_only_where_the_source_names_it(
    target: Make, changes: dict[str, str], backend: str
) -> None:
    found = deploy(target(topology={"attention": "tp4", "tp": 4, "dp": 1, "ep": 4}, **changes))
    assert found.deployment.engine.moe_backend == backend
