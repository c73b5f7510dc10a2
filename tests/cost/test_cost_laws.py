"""Laws of the cost model: more work is never cheaper, faster operations never slow a step down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v4sim.cost import Profile, RankLoad, StepCost
from v4sim.cost.base import PART_INDEX
from v4sim.cost.engine_constants import engine_constants

Compile = Callable[..., StepCost]
CHOICES: tuple[dict[str, Any], ...] = (
    {},
    {"spec": ("mtp", 3)},
    {"tp": 4, "dp": 1, "ep": 1},
    {"engine": "vllm", "dp": 8, "ep": 8, "spec": ("dspark", 5)},
    {"gpu": "h200", "model": "v4-pro", "tp": 8, "dp": 1, "ep": 1},
    {"model": "v4.1-flash", "dp": 8, "ep": 8},
)
choices = st.sampled_from(CHOICES)
M = 1_048_576


def step(cost: StepCost, loads: list[RankLoad], width: int = 1) -> int:
    kind = "mixed" if any(load.prefill for load in loads) else "decode"
    return sum(cost.step(loads, width, kind))


def spread(choice: dict[str, Any], load: RankLoad) -> list[RankLoad]:
    """The load on one rank, a small one on the others."""
    return [load, *[RankLoad(1, 500, 500)] * (choice.get("dp", 4) - 1)]


@given(choice=choices, rows=st.integers(1, 500), ctx=st.integers(200, M), width=st.integers(1, 5))
def test_one_more_sequence_never_makes_a_step_shorter(
    compiled: Compile, choice: dict[str, Any], rows: int, ctx: int, width: int
) -> None:
    cost = compiled(**choice)
    less = step(cost, spread(choice, RankLoad(rows, rows * ctx, ctx)), width)
    more = step(cost, spread(choice, RankLoad(rows + 1, (rows + 1) * ctx, ctx)), width)
    assert more >= less


@given(choice=choices, rows=st.integers(1, 200), ctx=st.integers(200, M), more=st.integers(0, 300_000))
def test_longer_contexts_never_make_a_step_shorter(
    compiled: Compile, choice: dict[str, Any], rows: int, ctx: int, more: int
) -> None:
    cost = compiled(**choice)
    shorter = step(cost, spread(choice, RankLoad(rows, rows * ctx, ctx)))
    assert step(cost, spread(choice, RankLoad(rows, rows * (ctx + more), ctx + more))) >= shorter


@given(choice=choices, rows=st.integers(1, 200), ctx=st.integers(200, M), width=st.integers(1, 5))
def test_a_wider_verify_never_makes_a_step_shorter(
    compiled: Compile, choice: dict[str, Any], rows: int, ctx: int, width: int
) -> None:
    cost = compiled(**choice)
    load = spread(choice, RankLoad(rows, rows * ctx, ctx))
    assert step(cost, load, width + 1) >= step(cost, load, width)


@given(
    choice=choices,
    new=st.integers(1, 16_000),
    more=st.integers(0, 400),
    past=st.integers(0, 900_000),
    further=st.integers(0, 100_000),
)
def test_more_prefill_never_makes_a_step_shorter(
    compiled: Compile, choice: dict[str, Any], new: int, more: int, past: int, further: int
) -> None:
    cost = compiled(**choice)
    base = step(cost, spread(choice, RankLoad(0, 0, 0, ((new, past),))))
    assert step(cost, spread(choice, RankLoad(0, 0, 0, ((new + more, past),)))) >= base
    assert step(cost, spread(choice, RankLoad(0, 0, 0, ((new, past + further),)))) >= base


@given(choice=choices, new=st.integers(64, 8192), past=st.integers(0, 500_000), rows=st.integers(1, 64))
def test_decodes_that_join_a_chunk_never_make_it_shorter(
    compiled: Compile, choice: dict[str, Any], new: int, past: int, rows: int
) -> None:
    cost = compiled(**choice)
    chunk = ((new, past),)
    alone = step(cost, spread(choice, RankLoad(0, 0, 0, chunk)))
    joined = step(cost, spread(choice, RankLoad(rows, rows * 4096, 4096, chunk)))
    apart = step(cost, spread(choice, RankLoad(rows, rows * 4096, 4096)))
    graphs = int(engine_constants(choice.get("engine", "sglang")).prefill_graph_tokens.value)
    if new <= graphs < new + rows:  # together they are more than the graphs take: launched one by one
        eager = step(cost, spread(choice, RankLoad(0, 0, 0, ((graphs + 1, past),))))
        assert alone <= joined <= eager + apart
    else:
        assert alone <= joined <= alone + apart, "joining pays the launch floor once"


def test_a_decode_that_joins_a_chunk_past_the_graphs_waits_for_the_host(compiled: Compile) -> None:
    """vLLM captures up to 512 tokens: the chunk of 512 is replayed, with one row beside it it is launched."""
    cost = compiled(engine="vllm", dp=8, ep=8)
    replayed, launched = (
        step(cost, spread({"dp": 8}, RankLoad(rows, rows * 4096, 4096, ((512, 0),)))) for rows in (0, 1)
    )
    assert launched > 2 * replayed


def test_a_rank_that_mixes_pays_the_launch_floor_of_its_modules_once(compiled: Compile) -> None:
    cost = compiled(dp=1, tp=1, ep=1, engine="vllm")
    chunk = ((2048, 100_000),)

    def modules(load: RankLoad) -> int:
        parts = cost.step([load], 1, "mixed")
        return parts[PART_INDEX["attention_other"]] + parts[PART_INDEX["hca"]] + parts[PART_INDEX["swa"]]

    apart = modules(RankLoad(4, 4000, 1000))
    added = modules(RankLoad(4, 4000, 1000, chunk)) - modules(RankLoad(0, 0, 0, chunk))
    assert 0 <= added < 0.3 * apart


@settings(max_examples=25)
@given(choice=choices, data=st.data())
def test_a_faster_operation_never_makes_a_step_slower(
    compiled: Compile, profiles: Callable[[str], Profile], choice: dict[str, Any], data: st.DataObject
) -> None:
    cost = compiled(**choice)
    profile = profiles(choice.get("gpu", "b200"))
    used = [row["op"] for row in cost.provenance() if row["op"] in profile.operations]
    used = [name for name in used if profile.operations[name].unit == "us"]
    name = data.draw(st.sampled_from(used))
    faster = dict(profile.operations)
    faster[name] = faster[name].scaled(data.draw(st.floats(0.1, 0.95)))
    quick = compiled(profile=replace(profile, operations=faster), **choice)
    decoding = spread(choice, RankLoad(16, 16 * 100_000, 150_000))
    filling = spread(choice, RankLoad(2, 9000, 8000, ((3000, 40_000), (500, 0))))
    for loads in (decoding, filling):
        assert step(quick, loads, 2) <= step(cost, loads, 2)


def test_tp_does_not_divide_the_index_scan(compiled: Compile) -> None:
    load = [RankLoad(4, 4 * 500_000, 500_000)]
    scans, whole = {}, {}
    for tp in (1, 2, 4, 8):
        parts = compiled(tp=tp, dp=1, ep=1).step(load, 1, "decode")
        scans[tp], whole[tp] = parts[PART_INDEX["index_scan"]], parts[PART_INDEX["attention_other"]]
    assert len(set(scans.values())) == 1
    assert whole[8] < whole[1], "projections are divided"
    chunk = [RankLoad(0, 0, 0, ((8192, 800_000),))]
    one, eight = (compiled(tp=tp, dp=1, ep=1).step(chunk, 1, "prefill") for tp in (1, 8))
    assert one[PART_INDEX["index_scan"]] == eight[PART_INDEX["index_scan"]]


@given(rows=st.integers(1, 64), ctx=st.integers(1000, M), width=st.integers(1, 4))
def test_fp4_keys_never_scan_slower_than_fp8(compiled: Compile, rows: int, ctx: int, width: int) -> None:
    load = [RankLoad(rows, rows * ctx, ctx)] * 4
    fp4, fp8 = (compiled(index=dtype).step(load, width, "decode") for dtype in ("fp4", "fp8"))
    assert fp4[PART_INDEX["index_scan"]] <= fp8[PART_INDEX["index_scan"]]


def test_memory_bound_scans_follow_the_bytes_of_a_key(compiled: Compile) -> None:
    """68 of 132 bytes at width 1 and a long context, no gain once the arithmetic binds."""

    def scan(dtype: str, width: int) -> int:
        load = [RankLoad(16, 16 * M, M)] * 4
        return compiled(index=dtype).step(load, width, "decode")[PART_INDEX["index_scan"]]

    assert scan("fp4", 1) / scan("fp8", 1) == pytest.approx(68 / 132, abs=0.06)
    assert scan("fp4", 4) == pytest.approx(scan("fp8", 4), rel=0.02)
    assert scan("fp8", 4) > 1.9 * scan("fp8", 1)


def test_batched_long_contexts_pay_for_every_context(compiled: Compile) -> None:
    cost = compiled(dp=1, tp=1, ep=1)
    one = cost.step([RankLoad(1, M, M)], 1, "decode")
    eight = cost.step([RankLoad(8, 8 * M, M)], 1, "decode")
    scan = PART_INDEX["index_scan"]
    floor = cost.step([RankLoad(8, 8, 1)], 1, "decode")[scan]
    assert eight[scan] - floor == pytest.approx(8 * (one[scan] - floor), rel=0.05)
    assert sum(one) < sum(eight) < 8 * sum(one)
    level = cost.step([RankLoad(8, M, M // 8)], 1, "decode")
    assert level[PART_INDEX["topk"]] < one[PART_INDEX["topk"]], "top-k and HCA follow the longest"


def test_the_same_acceptance_wins_alone_and_loses_at_saturation(compiled: Compile) -> None:
    """vllm#49369: a healthy draft head can cost throughput on a saturated GPU."""
    one = {"gpu": "b300", "tp": 1, "dp": 1, "ep": 1, "engine": "vllm"}
    accepted = 1.9

    def speedup(rows: int) -> float:
        load = [RankLoad(rows, rows * 4096, 4096)]
        plain = step(compiled(**one), load)
        return accepted * plain / step(compiled(**one, spec=("dspark", 5)), load, 6)

    assert speedup(1) > 1.1
    assert speedup(512) < 0.9
