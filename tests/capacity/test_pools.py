"""The planner: a ledger that adds up, monotone laws, and the errors that say how much is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.capacity import RankPools, pools
from v4sim.config import load, presets, rank_limits, resolve
from v4sim.errors import CapacityError
from v4sim.model import spec
from v4sim.model.hardware import gpu
from v4sim.model.layout import SglangLayout, VllmLayout

Plan = Callable[..., RankPools]
VLLM = "8xB200 V4-Flash DP8 vllm"
sglang_sets = st.fixed_dictionaries(
    {
        "engine.max_running": st.integers(4, 1024),
        "engine.mem_fraction": st.floats(0.6, 0.95),
        "engine.swa_full_ratio": st.floats(0.02, 1.0),
        "engine.chunked_prefill_tokens": st.sampled_from([1024, 4096, 16384]),
        "engine.cuda_graph_max_bs": st.integers(1, 512),
        "engine.redundant_experts": st.sampled_from([0, 4, 16]),
        "model.index_dtype": st.sampled_from(["fp8", "fp4"]),
    }
)


def planned(sets: dict[str, object], preset: str | None = None) -> RankPools:
    texts = [f"{key}={value}" for key, value in sets.items()]
    deployment = load(sets=texts) if preset is None else load(preset, texts)
    return pools(deployment, spec(deployment.model.name))


class TestLedger:
    @pytest.mark.parametrize("name", presets())
    def test_every_preset_fits_and_its_ledger_is_the_memory_of_a_gpu(self, name: str, plan: Plan) -> None:
        found = plan(preset=name)
        assert found.memory_bytes == gpu(load(name).hardware.gpu).memory_bytes
        assert min(line.bytes for line in found.ledger) >= 0
        assert len({line.name for line in found.ledger}) == len(found.ledger)
        assert all(line.source for line in found.ledger)
        assert found.kv_tokens >= load(name).model.max_context_tokens

    @given(sglang_sets)
    def test_it_adds_up_for_any_settings(self, sets: dict[str, object]) -> None:
        found = planned(sets)
        assert found.memory_bytes == gpu("b200").memory_bytes
        assert min(line.bytes for line in found.ledger) >= 0
        assert found.kv_tokens % 256 == found.swa_tokens % 256 == 0

    @given(sglang_sets)
    def test_cache_lines_are_the_pages_of_the_pools(self, sets: dict[str, object]) -> None:
        found = planned(sets)
        layout = SglangLayout(spec("v4-flash"), str(sets["model.index_dtype"]))
        assert found.bytes_of("kv") == found.kv_tokens // 256 * layout.page_bytes
        assert found.bytes_of("swa") == found.swa_tokens // 256 * layout.swa_page_bytes
        assert found.bytes_of("state") == layout.state_bytes(found.request_slots)
        assert found.bytes_of("state") >= found.request_slots * found.state_bytes_per_request
        assert found.cache_bytes == found.bytes_of("kv") + found.bytes_of("swa")

    def test_a_line_that_is_not_there_is_zero(self, plan: Plan) -> None:
        assert plan().bytes_of("eplb") == 0


class TestLaws:
    @pytest.mark.parametrize(
        ("less", "more"),
        [
            ("engine.mem_fraction=0.7", "engine.mem_fraction=0.8"),
            ("engine.swa_full_ratio=0.2", "engine.swa_full_ratio=0.1"),
            ("engine.max_running=1024", "engine.max_running=64"),
            ("engine.redundant_experts=16", "engine.redundant_experts=0"),
            ("hardware.mem_gib=170.0", "hardware.mem_gib=179.0"),
        ],
    )
    def test_what_takes_memory_takes_it_from_the_cache(self, less: str, more: str, plan: Plan) -> None:
        assert plan(less).kv_tokens < plan(more).kv_tokens

    def test_speculation_takes_memory(self, plan: Plan) -> None:
        draft = plan("speculation.kind=mtp", "speculation.draft_tokens=1", "engine.moe_backend=megamoe")
        assert draft.kv_tokens < plan().kv_tokens
        assert draft.bytes_of("draft head") > 0
        assert draft.state_bytes_per_request == 2 * plan().state_bytes_per_request
        layout = SglangLayout(spec("v4-flash"), "fp8", draft_tokens=1)
        pages = draft.swa_tokens // 256
        assert draft.bytes_of("swa") == pages * (layout.swa_page_bytes + layout.swa_layer_page_bytes)

    def test_more_gpus_leave_more_cache_on_each(self, plan: Plan) -> None:
        wide = plan(preset="8xB200 V4-Flash DP8+EP8 sglang")
        assert wide.bytes_of("routed experts") * 2 == plan().bytes_of("routed experts")
        assert wide.bytes_of("attention") == plan().bytes_of("attention")

    def test_tp_cuts_heads_and_repeats_what_all_heads_share(self, plan: Plan) -> None:
        tp = plan(preset="4xB200 V4-Flash TP4 sglang")
        assert tp.bytes_of("attention") < plan().bytes_of("attention")
        assert tp.bytes_of("indexer and compressors") == plan().bytes_of("indexer and compressors")
        assert tp.bytes_of("routed experts") == plan().bytes_of("routed experts")

    def test_index_logits_shrink_the_cache_where_the_reserve_cannot_hold_them(self, plan: Plan) -> None:
        """SGLang 35201: with most memory given to the pools, a 1M prompt must still have its logits."""
        large = ("engine.mem_fraction=0.95", "engine.chunked_prefill_tokens=32768")
        whole = plan(*large)
        tiled = plan(*large, "engine.index_tile_gib=1.0")
        assert whole.bytes_of("index scratch") == 8 * 2**30
        assert tiled.bytes_of("index scratch") == 2**30
        assert tiled.kv_tokens > whole.kv_tokens
        assert whole.bytes_of("reserved") == 0

    def test_tp_does_not_divide_the_index_scratch(self, plan: Plan) -> None:
        """SGLang 40217: the scratch is per GPU. Same chunk a rank, four times the attention TP."""
        tp = plan("engine.chunked_prefill_tokens=4096", preset="4xB200 V4-Flash TP4 sglang")
        assert tp.bytes_of("index scratch") == plan().bytes_of("index scratch") == 4 * 2**30

    def test_v41_scratch_is_tiled(self, plan: Plan) -> None:
        preset = "8xB200 V4.1-Flash DP8+EP8 sglang"
        assert plan(preset=preset).bytes_of("index scratch") == 2 * 2**30
        whole = plan("engine.index_tile_gib=0", preset=preset)
        assert whole.bytes_of("index scratch") == 6 * 2048 * 2**20

    def test_engram_tables_are_spread_over_the_gpus_or_stay_on_the_host(self, plan: Plan) -> None:
        preset = "8xB200 V4.1-Flash DP8+EP8 sglang"
        held = plan(preset=preset)
        assert held.bytes_of("engram") == (384_006_168 + 384_016_682) * 264 // 8
        host = plan("engine.engram=host", preset=preset)
        assert host.bytes_of("engram") == 0
        assert host.kv_tokens > held.kv_tokens

    def test_windows_of_v41_are_sized_by_the_calls_that_may_run(self, plan: Plan) -> None:
        """SGLang 0.5.23's default; a ratio that is given holds instead. V4's default is a ratio of 0.1."""
        preset = "8xB200 V4.1-Flash DP8+EP8 sglang"
        by_cap, more = plan(preset=preset), plan("engine.max_running=512", preset=preset)
        slots = by_cap.request_slots
        assert by_cap.swa_tokens == slots * (128 + 128 + 256 + 256) + 2 * 2048 + 256 + 4 * slots * (128 + 256)
        assert more.swa_tokens > by_cap.swa_tokens
        resolved = resolve(load(preset))
        assert resolved.engine.swa_full_ratio is None  # what is shown is what is in force
        assert resolve(load()).engine.swa_full_ratio == 0.1
        assert pools(resolved, spec(resolved.model.name)) == by_cap  # written back, it stays so
        by_ratio = plan("engine.swa_full_ratio=0.2", preset=preset)
        assert by_ratio.swa_tokens == by_ratio.kv_tokens // 5 // 256 * 256
        given = plan(f"engine.swa_tokens_per_rank={2 * by_cap.swa_tokens}", preset=preset)
        assert given.swa_tokens == 2 * by_cap.swa_tokens
        assert by_ratio.kv_tokens < 0.95 * by_cap.kv_tokens < given.kv_tokens < by_cap.kv_tokens

    @given(st.integers(8, 4000))
    def test_an_override_is_kept_to_the_page(self, pages: int) -> None:
        found = planned({"engine.kv_tokens_per_rank": 256 * pages + 100, "engine.swa_full_ratio": 0.5})
        assert found.kv_tokens == 256 * pages
        assert found.swa_tokens == 256 * (pages // 2)
        vllm = planned({"engine.kv_tokens_per_rank": 256 * pages}, VLLM)
        assert vllm.kv_tokens == 256 * pages

    def test_the_priced_size_is_the_budget_over_the_price(self, plan: Plan) -> None:
        """`reported_tokens` is what SGLang logs; with room to spare the pool has exactly that size."""
        found, deployment = plan("engine.version=0.5.15"), resolve(load())
        fraction = deployment.engine.mem_fraction
        assert fraction is not None
        steps = ("framework", "cuda graphs", "activations", "index scratch", "dispatch buffers")
        not_weights = {*steps, "state", "kv", "swa", "reserved", "free"}
        weights = sum(line.bytes for line in found.ledger if line.name not in not_weights)
        budget = int(fraction * found.memory_bytes) - weights - found.bytes_of("state")
        price = SglangLayout(spec("v4-flash"), "fp8", version="0.5.15").bytes_per_full_token(0.1)
        assert found.kv_tokens == found.reported_tokens
        assert 0 <= budget / price - found.kv_tokens < 257


class TestVllm:
    def test_one_pool_of_blocks_serves_everything(self, plan: Plan) -> None:
        found = plan(preset=VLLM)
        layout = VllmLayout(spec("v4-flash"), "fp4")
        assert found.bytes_of("kv") == found.num_blocks * layout.block_bytes
        assert found.bytes_of("swa") == found.bytes_of("state") == 0
        assert found.swa_tokens == found.kv_tokens
        assert found.kv_tokens == (found.num_blocks - found.window_blocks_step) * found.block_tokens

    def test_utilisation_caps_everything(self, plan: Plan) -> None:
        found = plan(preset=VLLM)
        assert found.bytes_of("reserved") == found.memory_bytes - int(0.92 * found.memory_bytes)

    def test_a_larger_step_leaves_a_smaller_pool(self, plan: Plan) -> None:
        large = plan("engine.max_batched_tokens=16384", preset=VLLM)
        assert large.kv_tokens < plan(preset=VLLM).kv_tokens
        assert large.window_blocks_step > plan(preset=VLLM).window_blocks_step

    def test_the_logged_size_counts_the_windows_of_a_full_request(self, plan: Plan) -> None:
        found = plan(preset=VLLM)
        layout = VllmLayout(spec("v4-flash"), "fp4")
        need = layout.request_blocks(2**20, 2 * 8192)
        assert found.reported_tokens == int(found.num_blocks / need * 2**20)
        assert found.reported_tokens < found.kv_tokens

    def test_windows_of_two_steps_are_held_where_results_come_late(self, plan: Plan) -> None:
        """vLLM's own count in steady prefill: 6,656 blocks with async scheduling, 3,350 without."""
        late, prompt = plan(preset=VLLM), plan("engine.async_scheduling=false", preset=VLLM)
        assert (late.window_blocks_step, prompt.window_blocks_step) == (6682, 3354)
        assert late.num_blocks == prompt.num_blocks
        assert (
            plan("engine.version=0.25", "engine.async_scheduling=true", preset=VLLM).window_blocks_step
            == 3354
        )


class TestWhatDoesNotFit:
    def test_weights(self) -> None:
        """FP8 experts of V4-Pro on eight H200: 197 GB a GPU of 151."""
        deployment = load("8xH200 V4-Pro TP8", ["model.weights=fp8"])
        with pytest.raises(
            CapacityError, match=r"weights of v4-pro .* take 18\d\.\d GiB on each h200.*GiB of 140\.4"
        ):
            pools(deployment, spec("v4-pro"))

    def test_one_prompt(self, plan: Plan) -> None:
        preset = "8xB200 V4-Pro DP8+EP8 sglang"
        with pytest.raises(CapacityError, match=r"prompt of 1048576 tokens does not fit .* holds \d+"):
            plan("engine.mem_fraction=none", preset=preset)
        assert (
            plan("engine.mem_fraction=none", "model.max_context_tokens=524288", preset=preset).kv_tokens
            > 524288
        )

    def test_one_prompt_of_vllm(self, plan: Plan) -> None:
        with pytest.raises(CapacityError, match=r"needs 10778 blocks and the pool has \d+"):
            plan("engine.mem_fraction=0.22", preset=VLLM)

    @pytest.mark.parametrize("preset", [None, VLLM])
    def test_an_override_that_is_too_large(self, preset: str | None) -> None:
        with pytest.raises(CapacityError, match=r"GiB.*Lower engine\.kv_tokens_per_rank"):
            planned({"engine.kv_tokens_per_rank": 10**9}, preset)

    def test_a_window_pool_in_which_nothing_advances(self, plan: Plan) -> None:
        with pytest.raises(CapacityError, match=r"window pool holds 256 tokens and one request needs 512"):
            plan("engine.kv_tokens_per_rank=100000", "engine.swa_tokens_per_rank=256")

    def test_no_chunking_of_a_million_tokens(self, plan: Plan) -> None:
        with pytest.raises(CapacityError, match="shorter prefill chunk"):
            plan("engine.chunked_prefill_tokens=-1")
        assert plan("engine.chunked_prefill_tokens=-1", "model.max_context_tokens=32768").kv_tokens > 0


def test_slots_are_the_ranks_share() -> None:
    for name in presets():
        deployment = load(name)
        assert (
            pools(deployment, spec(deployment.model.name)).request_slots
            == rank_limits(deployment).max_running
        )
