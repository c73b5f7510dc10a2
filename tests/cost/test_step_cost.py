"""The compiled step cost: two paths, lockstep, graphs, host time, domain and provenance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v4sim.config.deployment import Deployment
from v4sim.cost import (
    PARTS,
    Profile,
    RankLoad,
    StepCost,
    compile_cost,
    engine_constants,
    load_profile,
    together,
)
from v4sim.cost.base import PART_INDEX
from v4sim.errors import ProfileError
from v4sim.model import spec

Compile = Callable[..., StepCost]

CHOICES: tuple[dict[str, Any], ...] = (
    {},
    {"spec": ("mtp", 1)},
    {"tp": 4, "dp": 1, "ep": 1, "spec": ("mtp", 3), "index": "fp4"},
    {"tp": 2, "dp": 4, "ep": 8, "engine": "vllm", "spec": ("dspark", 5)},
    {"gpu": "h200", "tp": 4, "dp": 1, "ep": 1, "weights": "fp4", "overlap": False},
    {"gpu": "h200", "dp": 8, "ep": 8},
    {"gpu": "gb300", "model": "v4-pro", "tp": 4, "dp": 1, "ep": 1, "cpu_step_us": 40_000.0},
    {"model": "v4.1-flash", "dp": 8, "ep": 8},
)


@settings(max_examples=60)
@given(data=st.data())
def test_vector_path_is_the_scalar_path_bit_for_bit(compiled: Compile, data: st.DataObject) -> None:
    choice = data.draw(st.sampled_from(CHOICES))
    cost = compiled(**choice)
    ranks = choice.get("dp", 4)
    rows = data.draw(st.lists(st.integers(0, 700), min_size=ranks, max_size=ranks))
    width = data.draw(st.integers(1, 6))
    steps = data.draw(st.integers(1, 5))
    ctx_max = np.zeros((steps, ranks), dtype=np.int64)
    ctx_sum = np.zeros((steps, ranks), dtype=np.int64)
    for rank, count in enumerate(rows):
        if count:
            longest = data.draw(st.integers(1, 1_048_576))
            total = data.draw(st.integers(longest, longest * count))
            ctx_max[:, rank] = longest + np.arange(steps) * width
            ctx_sum[:, rank] = total + np.arange(steps) * width * count
    vector = cost.decode(rows, ctx_sum, ctx_max, width)
    assert vector.dtype == np.int64
    assert vector.shape == (len(PARTS), steps)
    for k in range(steps):
        loads = [RankLoad(rows[r], int(ctx_sum[k, r]), int(ctx_max[k, r])) for r in range(ranks)]
        assert vector[:, k].tolist() == cost.step(loads, width, "decode")


def step_ns(cost: StepCost, loads: list[RankLoad], width: int = 1, kind: str = "decode") -> int:
    return sum(cost.step(loads, width, kind))


def test_parts_are_named_integers_and_none_is_negative(compiled: Compile) -> None:
    loads = [RankLoad(8, 80_000, 20_000), RankLoad(0, 0, 0, ((4096, 8192),)), RankLoad(0, 0, 0)]
    found = compiled().step([*loads, RankLoad(3, 300, 200)], 1, "mixed")
    assert len(found) == len(PARTS)
    assert all(isinstance(v, int) and v >= 0 for v in found)


def test_the_slowest_rank_sets_the_step_and_gives_its_parts(compiled: Compile) -> None:
    cost = compiled()
    idle, light, heavy = RankLoad(0, 0, 0), RankLoad(1, 1000, 1000), RankLoad(1, 1_000_000, 1_000_000)
    alone = cost.step([heavy, idle, idle, idle], 1, "decode")
    for scan in ("index_scan", "topk", "hca", "attention_other"):
        i = PART_INDEX[scan]
        assert cost.step([light, light, heavy, light], 1, "decode")[i] == alone[i]
    slow, fast = step_ns(cost, [light, light, heavy, light]), step_ns(cost, [light] * 4)
    assert slow > fast


def test_ranks_change_places_without_changing_the_step(compiled: Compile) -> None:
    cost = compiled()
    loads = [RankLoad(4, 40_000, 20_000), RankLoad(0, 0, 0), RankLoad(2, 9000, 8000), RankLoad(7, 700, 100)]
    assert cost.step(loads, 1, "decode") == cost.step(loads[::-1], 1, "decode")


def test_nobody_steps_when_all_are_idle(compiled: Compile) -> None:
    cost = compiled()
    assert step_ns(cost, [RankLoad(0, 0, 0)] * 4) == 0
    zero = np.zeros((3, 4), dtype=np.int64)
    assert not cost.decode([0] * 4, zero, zero, 1).any()


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_idle_peers_add_no_attention(compiled: Compile, engine: str) -> None:
    """vllm#51984: an idle DP rank steps along."""
    lone = compiled(engine=engine).step([RankLoad(4, 4000, 1000), *[RankLoad(0, 0, 0)] * 3], 1, "decode")
    full = compiled(engine=engine).step([RankLoad(4, 4000, 1000)] * 4, 1, "decode")
    for part in ("index_scan", "topk", "attention_other", "hca", "swa", "mhc"):
        assert lone[PART_INDEX[part]] == full[PART_INDEX[part]]


def test_a_dummy_batch_is_as_wide_as_the_widest_rank(compiled: Compile) -> None:
    """vLLM pads DP ranks to one graph size, so idle ones send as many tokens to the experts; not SGLang."""
    moe = PART_INDEX["moe"]
    one, four = [RankLoad(4, 4000, 1000), *[RankLoad(0, 0, 0)] * 3], [RankLoad(4, 4000, 1000)] * 4
    vllm, sglang = compiled(engine="vllm"), compiled(engine="sglang")
    assert vllm.step(one, 1, "decode")[moe] == vllm.step(four, 1, "decode")[moe]
    assert sglang.step(one, 1, "decode")[moe] < sglang.step(four, 1, "decode")[moe]
    prefill = [RankLoad(0, 0, 0, ((4096, 0),)), *[RankLoad(0, 0, 0)] * 3]
    whole = [RankLoad(0, 0, 0, ((4096, 0),))] * 4
    assert vllm.step(prefill, 1, "prefill")[moe] < vllm.step(whole, 1, "prefill")[moe]


def test_a_batch_above_the_captured_graphs_steps_up(compiled: Compile) -> None:
    """vllm-ascend#14440: throughput falls past the largest captured batch."""
    cost = compiled(cuda_graph_max_bs=256)

    def at(rows: int) -> int:
        return step_ns(cost, [RankLoad(rows, rows * 4096, 4096)] * 4)

    assert at(257) - at(256) > 5 * (at(256) - at(255))
    constants = engine_constants("sglang")
    launches = constants.operations_per_layer.value * 43 + constants.operations_per_pass.value
    assert at(257) - at(256) > launches * 10_000, "at least ten microseconds a launch"


def test_host_time_shows_only_where_the_gpu_does_not_hide_it(compiled: Compile) -> None:
    loads = [RankLoad(1, 1000, 1000)] * 4
    gpu = sum(compiled(cpu_step_us=0.0).step(loads, 1, "decode"))
    slow = compiled(cpu_step_us=50_000.0).step(loads, 1, "decode")
    assert sum(slow) == 50_000_000
    assert slow[PART_INDEX["cpu"]] == 50_000_000 - gpu
    serial = compiled(cpu_step_us=2_000.0, overlap=False).step(loads, 1, "decode")
    assert sum(serial) == gpu + 2_000_000
    assert compiled(cpu_step_us=100.0).step(loads, 1, "decode")[PART_INDEX["cpu"]] == 0


def test_an_eager_prefill_lasts_as_long_as_its_process_launches_and_schedules(compiled: Compile) -> None:
    """A short chunk costs launches and host work, a long one its GPU time; drafts are launched, too."""
    short = [RankLoad(0, 0, 0, ((256, 0),)), *[RankLoad(0, 0, 0)] * 3]
    constants = engine_constants("sglang")
    layer, launch = constants.operations_per_layer.value, 55.0
    more = {"megamoe": 0.0, "deepep": constants.operations_per_dispatch.value}
    for backend, dispatch in more.items():
        options = {"moe_backend": backend, "cpu_launch_us": launch}
        free, busy = (
            sum(compiled(cpu_step_us=us, **options).step(short, 1, "prefill")) for us in (0.0, 5_000.0)
        )
        assert busy - free == 5_000_000
        assert free == 1000 * launch * (43 * (layer + dispatch) + constants.operations_per_pass.value)
        drafting = sum(compiled(cpu_step_us=0.0, spec=("mtp", 1), **options).step(short, 1, "prefill"))
        assert drafting - free == 1000 * launch * (layer + dispatch + constants.operations_per_pass.value)
    long = [RankLoad(0, 0, 0, ((8192, 500_000),))] * 4
    assert step_ns(compiled(cpu_step_us=5_000.0), long) == step_ns(compiled(cpu_step_us=0.0), long)


def test_shapes_of_prefills_are_not_kept_without_end(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = compiled()
    shapes = [[RankLoad(0, 0, 0, ((256 + new, 0),)), *[RankLoad(0, 0, 0)] * 3] for new in range(20)]
    priced = [cost.step(loads, 1, "prefill") for loads in shapes]
    monkeypatch.setattr(together, "_PREFILLS_KEPT", 8)
    assert [compiled().step(loads, 1, "prefill") for loads in shapes] == priced
    forgetful: Any = compiled()
    assert [forgetful.step(loads, 1, "prefill") for loads in [*shapes, *shapes]] == priced * 2
    assert len(forgetful._together._prefill) <= 8


def test_deepep_prefill_waits_for_counts_in_every_layer(compiled: Compile) -> None:
    long = [RankLoad(0, 0, 0, ((8192, 500_000),))] * 4
    waits = compiled(moe_backend="deepep").step(long, 1, "prefill")[PART_INDEX["overhead"]]
    other = compiled(moe_backend="megamoe").step(long, 1, "prefill")[PART_INDEX["overhead"]]
    launch_us = load_profile("b200").operation("eager_launch.sglang").term("per_operation")
    assert waits - other == pytest.approx(1000 * 43 * launch_us, rel=0.01)


def test_speculation_pays_drafts_and_a_wider_verify(compiled: Compile) -> None:
    loads = [RankLoad(4, 4 * 8192, 8192)] * 4
    plain = compiled().step(loads, 1, "decode")
    one, three = (compiled(spec=("mtp", k)).step(loads, k + 1, "decode") for k in (1, 3))
    assert plain[PART_INDEX["mtp_draft"]] == 0
    assert 0 < one[PART_INDEX["mtp_draft"]] < three[PART_INDEX["mtp_draft"]]
    assert sum(plain) < sum(one) < sum(three)


def test_leaving_a_table_is_said_and_staying_inside_is_not(compiled: Compile) -> None:
    cost = compiled()
    cost.step([RankLoad(2, 200_000, 150_000)] * 4, 1, "decode")
    assert cost.domain_warnings() == []
    cost.step([RankLoad(8, 8 * 1_000_000, 1_000_000)] * 4, 1, "decode")
    (said,) = cost.domain_warnings()
    assert "batch x context" in said
    assert "8,000,000" in said
    cost.step([RankLoad(0, 0, 0, ((20_000, 0),))] * 4, 1, "prefill")
    assert any("20,000 new tokens" in w for w in cost.domain_warnings())


def test_provenance_names_every_operation_with_its_source_and_error(compiled: Compile) -> None:
    rows = {row["op"]: row for row in compiled(spec=("mtp", 1)).provenance()}
    assert rows["csa_decode.sglang.v4-flash.tp1"]["kind"] == "published"
    assert rows["index_scan.v4-flash.fp8"]["residual"]["p95"] > 0
    assert rows["engine.cpu_step_us"]["kind"] == "published"
    assert all(row["source"] and row["domain"] for row in rows.values())


def test_what_the_deployment_states_is_not_said_to_be_published(compiled: Compile) -> None:
    own = {"cpu_step_us": 900.0, "cpu_launch_us": 55.0, "cpu_cached_token_us": 1.5, "cpu_request_us": 80.0}
    rows = {row["op"]: row for row in compiled(**own).provenance()}
    given = {name: row["domain"] for name, row in rows.items() if row["kind"] == "given"}
    assert given == {
        "engine.cpu_step_us": "900",
        "eager_launch.sglang": "55",
        "engine.cpu_cached_token_us": "1.5",
        "engine.cpu_request_us": "80",
    }
    assert "engine.dp_gather_us" not in rows
    assert "engine.dp_gather_us" in {row["op"] for row in compiled(cpu_launch_us=55.0).provenance()}


def test_every_preset_has_a_price(profiles: Callable[[str], Profile]) -> None:
    from v4sim import config

    for name in config.presets():
        deployment = config.resolve(config.load(name, []))
        cost = compile_cost(profiles(deployment.hardware.gpu), deployment, spec(deployment.model.name))
        ranks = deployment.parallel.attention_dp
        loads = [RankLoad(4, 4 * 32_768, 40_000, ((1024, 16_384),))] * ranks
        assert 1e6 < sum(cost.step(loads, deployment.verify_width, "mixed")) < 1e9


def test_a_profile_of_another_gpu_is_refused(
    deploy: Callable[..., Deployment], profiles: Callable[[str], Profile]
) -> None:
    with pytest.raises(ProfileError, match=r"gpu 'h200'.*runs on 'b200'"):
        compile_cost(profiles("h200"), deploy(), spec("v4-flash"))


def test_a_shape_the_tables_lack_is_refused_not_replaced(
    compiled: Compile, deploy: Callable[..., Deployment], profiles: Callable[[str], Profile]
) -> None:
    """aiconfigurator#1453: queries of one model answered from another's rows."""
    with pytest.raises(ProfileError, match=r"csa_decode\.sglang\.v4-flash\.tp16"):
        compiled(gpu="gb200", tp=16, dp=1, ep=1)
    half = profiles("b200")
    kept = {k: v for k, v in half.operations.items() if "v4-pro" not in k}
    flash_only = Profile("flash", "b200", "", "", half.provenances, kept)
    with pytest.raises(ProfileError, match="v4-pro"):
        compile_cost(flash_only, deploy(model="v4-pro"), spec("v4-pro"))


def test_a_draw_moves_the_step_a_little(
    deploy: Callable[..., Deployment], profiles: Callable[[str], Profile]
) -> None:
    loads = [RankLoad(8, 80_000, 20_000)] * 4
    centre = sum(compile_cost(profiles("b200"), deploy(), spec("v4-flash")).step(loads, 1, "decode"))
    drawn = [
        sum(compile_cost(profiles("b200"), deploy(), spec("v4-flash"), seed).step(loads, 1, "decode"))
        for seed in range(12)
    ]
    assert len(set(drawn)) == 12
    assert all(0.7 < d / centre < 1.4 for d in drawn)
