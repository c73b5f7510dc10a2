"""FLOPs and bytes: scaling laws first, then the constants of the published cost models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.model import Layer, ModelSpec, model_names, ops, spec

MILLION = 1_048_576
names = st.sampled_from(model_names())


def one(model: ModelSpec, kind: str) -> Layer:
    return next(layer for layer in model.layers if layer.kind == kind)


class TestLaws:
    @given(names, st.integers(0, MILLION), st.integers(1, 4096))
    def test_a_longer_context_never_costs_less(self, name: str, context: int, more: int) -> None:
        model = spec(name)
        dtype = model.index_dtypes[0]
        for layer in model.layers:
            near = ops.index_scan(model, layer, 1, context, dtype)
            far = ops.index_scan(model, layer, 1, context + more, dtype)
            assert far.flops >= near.flops
            assert far.bytes >= near.bytes
            assert (
                ops.attention(model, layer, 1, context + more).flops
                >= ops.attention(model, layer, 1, context).flops
            )

    @given(names, st.integers(1, 512), st.integers(0, MILLION))
    def test_arithmetic_is_proportional_to_the_queries(self, name: str, n: int, context: int) -> None:
        model = spec(name)
        for layer in (model.layers[2], model.layers[3]):
            dtype = model.index_dtypes[0]
            assert (
                ops.index_scan(model, layer, n, context, dtype).flops
                == n * ops.index_scan(model, layer, 1, context, dtype).flops
            )
            assert (
                ops.attention(model, layer, n, context).flops
                == n * ops.attention(model, layer, 1, context).flops
            )

    @given(names, st.integers(1, 64), st.integers(4096, MILLION))
    def test_a_verify_window_reads_the_keys_once(self, name: str, n: int, context: int) -> None:
        model = spec(name)
        layer, dtype = model.index_sources[0], model.index_dtypes[0]
        together = ops.index_scan(model, layer, n, context, dtype, requests=1).bytes
        apart = ops.index_scan(model, layer, n, context, dtype, requests=n).bytes
        keys = ops.scanned_entries(model, layer, context) * model.index_bytes[dtype]
        assert apart - together == (n - 1) * keys

    def test_heads_are_cut_by_tp_and_the_scan_is_not(self, any_model: ModelSpec) -> None:
        layer = any_model.index_sources[0]
        whole, cut = (
            ops.attention(any_model, layer, 8, MILLION),
            ops.attention(any_model, layer, 8, MILLION, 4),
        )
        assert cut.flops * 4 == whole.flops
        assert ops.projections(any_model, 8, 4).flops < ops.projections(any_model, 8).flops
        replicated = (
            2 * 8 * any_model.hidden * (any_model.attention.q_lora_rank + any_model.attention.head_dim)
        )
        cut_share = ops.projections(any_model, 8, 4).flops - replicated
        assert cut_share * 4 == ops.projections(any_model, 8).flops - replicated

    @given(names, st.integers(1, 100_000))
    def test_distinct_experts_are_between_active_and_all(self, name: str, n: int) -> None:
        model = spec(name)
        found = ops.expected_distinct_experts(model, n)
        assert model.moe.active_experts - 1e-6 <= found <= model.moe.routed_experts

    def test_projection_weights_are_the_parameters_of_a_layer(self, any_model: ModelSpec) -> None:
        """o_a is BF16, hence counted twice in bytes."""
        a = any_model.attention
        o_a = a.heads * a.head_dim * a.o_lora_rank
        assert ops.projections(any_model, 0).bytes == any_model.dense_attention_params + o_a
        assert ops.projections(any_model, 1).flops == 2 * any_model.dense_attention_params

    @given(names, st.integers(0, MILLION))
    def test_a_layer_reads_at_most_what_it_scans_or_has(self, name: str, context: int) -> None:
        model = spec(name)
        for layer in model.layers:
            read = ops.read_entries(model, layer, context)
            if layer.kind == "swa":
                assert read == 0
            else:
                assert read <= ops.entries(context, layer.ratio)
            if layer.selects:
                assert read <= min(ops.scanned_entries(model, layer, context), model.index.topk)

    def test_only_sources_scan(self, any_model: ModelSpec) -> None:
        for layer in any_model.layers:
            assert (ops.scanned_entries(any_model, layer, MILLION) > 0) == layer.selects


class TestPublished:
    def test_index_scan_of_one_layer(self, flash: ModelSpec, pro: ModelSpec) -> None:
        for model in (flash, pro):
            layer = one(model, "selected")
            assert ops.index_scan(model, layer, 1, MILLION, "fp4").flops == 4_294_967_296

    def test_index_scan_of_all_layers(self, flash: ModelSpec, pro: ModelSpec, v41: ModelSpec) -> None:
        assert ops.index_scan_flops(flash, MILLION) == 21 * 4_294_967_296
        assert ops.index_scan_flops(pro, MILLION) == pytest.approx(1.288e11, rel=1e-3)
        assert ops.index_scan_flops(v41, MILLION) == 22_011_707_392

    def test_index_bytes_of_a_step(self, flash: ModelSpec, pro: ModelSpec, v41: ModelSpec) -> None:
        found = {
            (m.name, d): ops.index_bytes_per_step(m, MILLION, d)
            for m in (flash, pro, v41)
            for d in m.index_dtypes
        }
        assert found["v4-flash", "fp8"] == pytest.approx(726.7e6, abs=0.05e6)
        assert found["v4-pro", "fp8"] == pytest.approx(1_038e6, abs=0.5e6)
        assert found["v4-flash", "fp4"] == pytest.approx(374.3e6, abs=0.05e6)
        assert found["v4-pro", "fp4"] == pytest.approx(534.8e6, abs=0.05e6)
        assert found["v4.1-flash", "fp4"] == pytest.approx(182.7e6, abs=0.05e6)

    def test_attention_of_a_decode_token(self, flash: ModelSpec, pro: ModelSpec) -> None:
        assert ops.attention(flash, one(flash, "selected"), 1, MILLION).flops == 83_886_080
        assert ops.attention(pro, one(pro, "selected"), 1, MILLION).flops == 301_989_888
        assert ops.attention(flash, one(flash, "dense"), 1, MILLION).flops == 1_090_519_040

    def test_lm_head(self, flash: ModelSpec, pro: ModelSpec, v41: ModelSpec) -> None:
        sizes = [ops.lm_head(model, 1).bytes / 1e9 for model in (flash, pro, v41)]
        assert sizes == pytest.approx([1.06, 1.85, 1.32], abs=0.006)

    def test_fetching_every_selected_entry(self, flash: ModelSpec, pro: ModelSpec) -> None:
        assert ops.all_miss_bytes(flash) == 6_279_168
        assert ops.all_miss_bytes(pro) == 17_940_480
        assert ops.hot_buffer_bytes(flash, 4096) == 50_233_344

    @pytest.mark.parametrize(
        ("rows", "context", "gib"), [(4096, 372_000, 1.42), (4096, 800_000, 3.05), (8192, MILLION, 8.0)]
    )
    def test_index_logits_that_ran_out_of_memory(self, rows: int, context: int, gib: float) -> None:
        """Reported against SGLang (35201, 39095): rows x context/4 x 4 bytes on every rank."""
        found = ops.index_scratch_bytes(spec("v4-flash"), rows, context)
        assert found / 2**30 == pytest.approx(gib, abs=0.005)

    def test_dense_index_scratch_of_v41(self, v41: ModelSpec) -> None:
        """SGLang 40217: 6 bytes for each of 16k rows x 1M positions."""
        assert ops.index_scratch_bytes(v41, 16_384, MILLION) == 96 * 2**30
