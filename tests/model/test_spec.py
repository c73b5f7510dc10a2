"""Layers and parameters of the models: laws of the description first, then published figures."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from v4sim.errors import ConfigError
from v4sim.model import ModelSpec, model_names, spec
from v4sim.model.layout import IdealLayout


def described(name: str) -> dict[str, Any]:
    text = (resources.files("v4sim.model") / "specs" / f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


class TestLaws:
    def test_kinds_of_layers_add_up(self, any_model: ModelSpec) -> None:
        assert any_model.n_csa + any_model.n_hca + any_model.n_swa == any_model.num_layers

    def test_sources_are_never_later_than_their_readers_and_have_the_same_ratio(
        self, any_model: ModelSpec
    ) -> None:
        for layer in any_model.layers:
            for source in (layer.kv_source, layer.index_source):
                if source is not None:
                    assert source <= layer.index
                    assert any_model.layers[source].ratio == layer.ratio
            assert (layer.kv_source is None) == (layer.kind == "swa")
            assert (layer.index_source is None) == (layer.kind != "selected")

    def test_a_source_is_its_own_source(self, any_model: ModelSpec) -> None:
        for layer in any_model.layers:
            if layer.kv_source is not None:
                assert any_model.layers[layer.kv_source].owns_kv
            if layer.index_source is not None:
                assert any_model.layers[layer.index_source].selects

    def test_active_parameters_are_part_of_all_parameters(self, any_model: ModelSpec) -> None:
        assert 0 < any_model.active_params < any_model.total_params
        idle = any_model.moe.routed_experts - any_model.moe.active_experts
        difference = any_model.num_layers * idle * any_model.expert_params + any_model.embedding_params
        assert any_model.total_params - any_model.active_params == difference

    def test_fp4_experts_are_smaller_than_fp8_by_the_width_of_values_and_scales(
        self, any_model: ModelSpec
    ) -> None:
        assert any_model.expert_bytes("fp4") * 32 == any_model.expert_bytes("fp8") * 17

    def test_an_unknown_weight_format_is_refused(self, flash: ModelSpec) -> None:
        with pytest.raises(ConfigError, match="fp4 or fp8"):
            flash.expert_bytes("int3")


class TestPublished:
    @pytest.mark.parametrize(
        ("name", "selected", "dense", "window_only"),
        [("v4-flash", 21, 20, 2), ("v4-pro", 30, 31, 0), ("v4.1-flash", 38, 0, 2)],
    )
    def test_layer_counts(self, name: str, selected: int, dense: int, window_only: int) -> None:
        model = spec(name)
        assert (model.n_csa, model.n_hca, model.n_swa) == (selected, dense, window_only)

    def test_positions_of_the_kinds(self, flash: ModelSpec, pro: ModelSpec) -> None:
        assert [x.index for x in flash.layers if x.kind == "selected"] == list(range(2, 43, 2))
        assert [x.index for x in flash.layers if x.kind == "dense"] == list(range(3, 42, 2))
        assert [x.index for x in pro.layers if x.kind == "dense"] == [0, 1, *range(3, 60, 2)]

    def test_every_v4_layer_with_entries_owns_them(self, flash: ModelSpec, pro: ModelSpec) -> None:
        for model in (flash, pro):
            assert all(layer.owns_kv for layer in model.layers if layer.ratio)
            assert len(model.index_sources) == model.n_csa

    def test_v41_groups(self, v41: ModelSpec) -> None:
        assert [layer.index for layer in v41.layers if layer.owns_kv] == [2, 8, 14, 20]
        assert [layer.index for layer in v41.index_sources] == [2, 8, 14, 20, 24, 28, 32, 36]
        readers = {s: [x.index for x in v41.layers if x.kv_source == s] for s in (2, 8, 14, 20)}
        assert readers == {
            2: list(range(2, 8)),
            8: list(range(8, 14)),
            14: list(range(14, 20)),
            20: list(range(20, 40)),
        }
        reuse = [x for x in v41.layers if x.kind == "selected" and not x.selects]
        assert len(reuse) == 30

    @pytest.mark.parametrize(
        ("name", "total", "active"),
        [("v4-flash", 284.33e9, 13.27e9), ("v4-pro", 1572.99e9, 48.85e9)],
    )
    def test_parameters(self, name: str, total: float, active: float) -> None:
        assert spec(name).total_params == pytest.approx(total, abs=0.005e9)
        assert spec(name).active_params == pytest.approx(active, abs=0.005e9)

    def test_v41_parameters(self, v41: ModelSpec) -> None:
        """Published: 552B backbone, 16B active per decode token, 196B Engram."""
        assert v41.total_params == pytest.approx(552e9, rel=0.002)
        assert v41.active_params == pytest.approx(16e9, rel=0.02)
        assert v41.engram_params == (384_006_168 + 384_016_682) * 256

    def test_attention_parameters_of_one_layer(self, flash: ModelSpec, pro: ModelSpec) -> None:
        assert flash.dense_attention_params == 106_954_752
        assert pro.dense_attention_params == 299_892_736
        for model, csa, hca in ((flash, 19_136_512, 4_194_304), (pro, 31_391_744, 7_340_032)):
            selected = next(x for x in model.layers if x.kind == "selected")
            dense = next(x for x in model.layers if x.kind == "dense")
            assert model.attention_params(selected) - model.dense_attention_params == csa
            assert model.attention_params(dense) - model.dense_attention_params == hca

    @pytest.mark.parametrize(
        ("name", "size"), [("v4-flash", 13_369_344), ("v4-pro", 35_094_528), ("v4.1-flash", 18_800_640)]
    )
    def test_one_expert_in_mxfp4(self, name: str, size: int) -> None:
        assert spec(name).expert_bytes("fp4") == size


class TestDescriptions:
    def test_a_fourth_model_is_a_file(self, tmp_path: Path) -> None:
        """Four window-only layers become CSA layers at ratio 8: nothing but data changes."""
        text = (resources.files("v4sim.model") / "specs" / "v4-flash.toml").read_text(encoding="utf-8")
        data = tomllib.loads(text)
        ratios = data["attention"]["compress_ratios"]
        file = tmp_path / "v5-nano.toml"
        lines = [
            line
            for line in text.replace('name = "v4-flash"', 'name = "v5-nano"').splitlines()
            if not line.startswith("  ")
        ]
        start = lines.index("compress_ratios = [")
        lines[start] = f"compress_ratios = {[8, 8, *ratios[2:], 8, 8]}"
        del lines[start + 1]
        file.write_text("\n".join(lines), encoding="utf-8")

        model = spec(str(file))

        assert model.name == "v5-nano"
        assert model.ratios == (4, 8, 128)
        assert model.num_layers == 45
        per_token = IdealLayout(model, "fp8").bytes_per_token
        assert per_token == IdealLayout(spec("v4-flash"), "fp8").bytes_per_token + 4 * (584 + 132) / 8

    @pytest.mark.parametrize(
        ("break_it", "key"),
        [
            (lambda d: d.pop("moe"), "moe"),
            (lambda d: d["moe"].pop("intermediate"), "moe.intermediate: missing"),
            (lambda d: d["moe"].update(expert_count=3), "moe.expert_count: no such key"),
            (lambda d: d["attention"].update(heads="64"), "attention.heads = '64'"),
            (lambda d: d["attention"].update(index_sources=[20]), "layer 2 has no source"),
            (lambda d: d["attention"].update(kv_sources=[20]), "layer 2 has no source"),
        ],
    )
    def test_a_wrong_description_is_refused_by_key(
        self, break_it: Callable[[dict[str, Any]], object], key: str
    ) -> None:
        data = copy.deepcopy(described("v4-flash"))
        break_it(data)
        with pytest.raises(ConfigError, match=key):
            ModelSpec.from_dict(data, "my.toml")

    def test_an_unknown_model_lists_the_choices(self) -> None:
        with pytest.raises(ConfigError, match=r"v4-flash, v4-pro, v4\.1-flash"):
            spec("v4-max")

    def test_a_missing_file_is_named(self) -> None:
        with pytest.raises(ConfigError, match=r"nowhere\.toml"):
            spec("nowhere.toml")

    def test_the_names_are_those_of_the_files(self) -> None:
        assert [spec(name).name for name in model_names()] == list(model_names())
