"""The engines' own choices: laws of `resolve`, then the defaults read from their sources."""

from __future__ import annotations

from typing import Any

import pytest

from v4sim.config import Deployment, from_dict, load, presets, rank_limits, resolve
from v4sim.config.resolve import sglang_chunk_tokens, sglang_graph_max_bs, sglang_reserved_mib
from v4sim.errors import ConfigError

LEFT_TO_THE_COST_MODEL = {"cpu_step_us", "cpu_launch_us", "cpu_cached_token_us", "cpu_request_us"}
# None says "this engine has no such thing" or "no override" after resolving.
MAY_STAY_NONE = {
    "kv_tokens_per_rank",
    "swa_tokens_per_rank",
    "prefill_max_requests",
    "dispatch_tokens_per_rank",
}


def unset(deployment: Deployment) -> set[str]:
    """Keys that are None anywhere."""
    dump: dict[str, Any] = deployment.model_dump()
    return {
        key
        for section in dump.values()
        if isinstance(section, dict)
        for key, value in section.items()
        if value is None
    }


class TestLaws:
    @pytest.mark.parametrize("name", presets())
    def test_nothing_that_an_engine_needs_stays_open(self, name: str) -> None:
        left = unset(resolve(load(name))) - LEFT_TO_THE_COST_MODEL - MAY_STAY_NONE
        sglang = load(name).engine.kind == "sglang"
        has_no = (
            {"window_retention"} if sglang else {"chunked_prefill_tokens", "max_running", "swa_full_ratio"}
        )
        if name.startswith("8xB200 V4.1"):
            has_no.add("swa_full_ratio")  # windows for the calls that may run
        assert left == has_no

    @pytest.mark.parametrize("name", presets())
    def test_resolving_twice_changes_nothing(self, name: str) -> None:
        once = resolve(load(name))
        assert resolve(once) == once

    @pytest.mark.parametrize("name", presets())
    def test_a_resolved_deployment_survives_a_manifest(self, name: str) -> None:
        once = resolve(load(name))
        assert resolve(from_dict(once.options())) == once

    def test_what_is_given_is_kept(self) -> None:
        sets = ["engine.max_running=40", "engine.mem_fraction=0.7", "engine.chunked_prefill_tokens=4096"]
        engine = resolve(load(sets=sets)).engine
        assert (engine.max_running, engine.mem_fraction, engine.chunked_prefill_tokens) == (40, 0.7, 4096)


class TestSglang:
    @pytest.mark.parametrize(
        ("gib", "chunk"), [(19, 2048), (59, 4096), (80, 8192), (140, 8192), (160, 16384), (268, 16384)]
    )
    def test_chunk_by_memory(self, gib: int, chunk: int) -> None:
        assert sglang_chunk_tokens(gib * 1024) == chunk

    @pytest.mark.parametrize(
        ("gib", "tp", "rows"),
        [
            (16, 8, 8),
            (24, 1, 48),
            (24, 4, 160),
            (48, 1, 32),
            (48, 8, 160),
            (80, 2, 256),
            (140, 4, 512),
            (180, 1, 512),
        ],
    )
    def test_graph_rows_by_memory(self, gib: int, tp: int, rows: int) -> None:
        assert sglang_graph_max_bs(gib * 1024, tp) == rows

    def test_the_reserve_is_the_published_sum(self) -> None:
        """512 + 1.5 chunk + 1024 tp/8 + 2 rows, and under DP attention 4.5 rows a rank above 300 rows."""
        deployment = load()
        assert sglang_reserved_mib(deployment, 183_359) == 512 + 1.5 * 16384 + 512 + 1024 + 4.5 * 512 * 4
        tp = load("4xH200 V4-Flash TP4")
        assert sglang_reserved_mib(tp, 143_771) == 512 + 1.5 * 8192 + 512 + 1024
        small = load(sets=["engine.chunked_prefill_tokens=1024", "engine.cuda_graph_max_bs=8"])
        assert sglang_reserved_mib(small, 183_359) == 10 * 1024

    def test_a_rank_gets_its_share_of_the_group(self) -> None:
        limits = rank_limits(load())
        assert (limits.chunk_tokens, limits.max_running, limits.max_prefill_tokens) == (4096, 64, 16384)
        assert limits.conservativeness == pytest.approx(0.3)
        tp = rank_limits(load("4xH200 V4-Flash TP4"))
        assert (tp.chunk_tokens, tp.max_running, tp.conservativeness) == (8192, 256, 1.0)

    def test_no_chunking(self) -> None:
        assert rank_limits(load(sets=["engine.chunked_prefill_tokens=-1"])).chunk_tokens is None

    def test_deepep_buffers_come_on_top_of_the_reserve(self) -> None:
        plain = resolve(load(sets=["engine.moe_backend=megamoe"])).engine.mem_fraction
        deepep = resolve(load(sets=["engine.moe_backend=deepep"])).engine.mem_fraction
        assert plain is not None
        assert deepep is not None
        assert deepep < plain


class TestVllm:
    def test_versions_move_defaults(self) -> None:
        preset = "8xB200 V4-Flash DP8 vllm"
        new, old = resolve(load(preset)).engine, resolve(load(preset, ["engine.version=0.25"])).engine
        assert (new.mem_fraction, new.reserve_full_isl) == (0.92, True)
        assert (old.mem_fraction, old.reserve_full_isl) == (0.9, False)
        given = resolve(load(preset, ["engine.version=0.25", "engine.reserve_full_isl=true"])).engine
        assert given.reserve_full_isl

    def test_async_scheduling_stays_on_with_speculation(self) -> None:
        """vllm 0.20.0 and 0.25.0 config/vllm.py: on by default with MTP, since 0.25 with DSpark, too."""
        preset = "8xB200 V4-Flash DP8 vllm"
        for drafts in ("mtp", "dspark"):
            sets = [f"speculation.kind={drafts}", "speculation.draft_tokens=1", "engine.version=0.25"]
            assert resolve(load(preset, sets)).engine.async_scheduling

    def test_limits_are_per_rank_already(self) -> None:
        limits = rank_limits(load("8xB200 V4-Flash DP8 vllm"))
        assert (limits.chunk_tokens, limits.max_running, limits.max_prefill_tokens) == (8192, 1024, None)

    @pytest.mark.parametrize(
        ("speculation", "version", "drops", "ahead"),
        [("mtp", "0.33", False, 1), ("mtp", "0.29", True, 0), ("dspark", "0.33", False, 0)],
    )
    def test_what_draft_layers_need_of_a_hit(
        self, speculation: str, version: str, drops: bool, ahead: int
    ) -> None:
        """MTP reads the token after its own: a hash covers it too, or the last block is computed again."""
        sets = [f"speculation.kind={speculation}", "speculation.draft_tokens=1", f"engine.version={version}"]
        limits = rank_limits(load("8xB200 V4-Flash DP8 vllm", sets=sets))
        assert (limits.drops_last_block, limits.hash_lookahead_tokens) == (drops, ahead)


class TestFormats:
    @pytest.mark.parametrize(
        ("preset", "index", "weights", "backend"),
        [
            ("4xB200 V4-Flash DPA4+EP4 sglang", "fp8", "fp4", "megamoe"),
            ("8xB200 V4-Flash DP8 vllm", "fp4", "fp4", "megamoe"),
            ("4xH200 V4-Flash TP4", "fp8", "fp8", "triton"),
            ("8xH200 V4-Pro TP8", "fp8", "fp4", "marlin"),
            ("8xB200 V4-Pro TP8", "fp8", "fp4", "flashinfer_mxfp4"),
            ("8xB200 V4.1-Flash DP8+EP8 sglang", "fp4", "fp4", "megamoe"),
        ],
    )
    def test_by_engine_and_gpu(self, preset: str, index: str, weights: str, backend: str) -> None:
        found = resolve(load(preset))
        assert (found.model.index_dtype, found.model.weights) == (index, weights)
        assert found.engine.moe_backend == backend

    def test_a_price_comes_with_its_band(self) -> None:
        hardware = resolve(load()).hardware
        assert (hardware.price_low, hardware.price_per_gpu_hour, hardware.price_high) == (1.95, 2.90, 6.03)
        own = resolve(load(sets=["hardware.price_per_gpu_hour=4.5"])).hardware
        assert (own.price_low, own.price_high) == (4.5, 4.5)

    def test_contradictions_between_choices_are_found_after_resolving(self) -> None:
        """64 running requests a rank x width 17 are more rows than DeepEP's 1,024."""
        sets = ["speculation.kind=mtp", "speculation.draft_tokens=16", "engine.moe_backend=deepep"]
        with pytest.raises(ConfigError, match=r"1088 tokens.*dispatch_tokens_per_rank = 1024"):
            resolve(load(sets=sets))
