"""Reading deployments: presets, files, --set, and what a user gets told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.config import DEFAULT_PRESET, from_dict, load, parse_set, presets, resolve
from v4sim.config.errors import UNMODELLED, legal_keys
from v4sim.config.load import full_key, slug
from v4sim.errors import ConfigError


class TestPresets:
    def test_the_default_is_the_first(self) -> None:
        assert presets()[0] == DEFAULT_PRESET == "4xB200 V4-Flash DPA4+EP4 sglang"
        assert load() == load(DEFAULT_PRESET)

    @pytest.mark.parametrize(
        "name",
        [
            "8xB200 V4-Pro TP8",
            "4xH200 V4-Flash TP4",
            "8xB200 V4-Flash DP8 vllm",
            "8xB200 V4-Flash DP8+EP8 sglang",
        ],
    )
    def test_promised_presets_exist(self, name: str) -> None:
        assert name in presets()

    @pytest.mark.parametrize("name", presets())
    def test_every_preset_resolves_and_is_what_its_name_says(self, name: str) -> None:
        deployment = resolve(load(name))
        head, model = name.split()[:2]
        assert head.lower() == f"{deployment.hardware.num_gpus}x{deployment.hardware.gpu}"
        assert model.lower() == deployment.model.name
        assert deployment.engine.kind in {name.split()[-1], "sglang"}
        assert deployment.name == name

    @pytest.mark.parametrize(
        "name",
        [
            "4XB200 v4-flash dpa4+ep4 SGLANG",
            "4xb200-v4-flash-dpa4-ep4-sglang",
            " 4xB200_V4-Flash DPA4 EP4 sglang",
        ],
    )
    def test_names_match_without_case_or_punctuation(self, name: str) -> None:
        assert load(name) == load(DEFAULT_PRESET)

    def test_no_two_presets_share_a_slug(self) -> None:
        assert len({slug(name) for name in presets()}) == len(presets())

    def test_an_unknown_preset_names_the_nearest(self) -> None:
        with pytest.raises(ConfigError, match=r"nearest preset is '8xB200 V4-Pro TP8'.*Presets are"):
            load("8xB200 V4-Pro TP16")


class TestSet:
    @given(st.integers(-(10**9), 10**9))
    def test_integers_come_through(self, value: int) -> None:
        assert parse_set(f"a.b={value}") == ("a.b", value)

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("k=true", True),
            ("k = 0.5", 0.5),
            ("k=vllm", "vllm"),
            ('k="two words"', "two words"),
            ("k=1_000", 1000),
            ("k=none", None),
            ("k=constant:0.7", "constant:0.7"),
            ("k=4xB200 V4-Flash", "4xB200 V4-Flash"),
        ],
    )
    def test_values_are_toml_or_plain_words(self, text: str, value: object) -> None:
        assert parse_set(text) == ("k", value)

    @pytest.mark.parametrize("text", ["", "k", "k=", "=3", "k=[1,", "k={a"])
    def test_half_a_setting_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError, match="--set"):
            parse_set(text)

    def test_text_needs_no_quotes_even_if_it_looks_like_a_number(self) -> None:
        assert load("8xB200 V4-Flash DP8 vllm", ["engine.version=0.25"]).engine.version == "0.25"
        assert load(sets=["name=2026"]).name == "2026"

    def test_later_settings_win_and_none_returns_the_choice(self) -> None:
        sets = ["engine.max_running=64", "engine.max_running=32"]
        assert load(sets=sets).engine.max_running == 32
        assert load(sets=[*sets, "engine.max_running=none"]).engine.max_running is None

    def test_the_section_may_be_left_out_where_only_one_has_the_key(self) -> None:
        assert load(sets=["page_tokens=512"]) == load(sets=["engine.page_tokens=512"])
        assert load("8xB200 V4-Flash DP8 vllm", ["version=0.25"]).engine.version == "0.25"
        for key in legal_keys():
            leaf = key.rsplit(".", 1)[-1]
            if leaf not in ("kind", "name"):
                assert full_key(leaf, "here") == key

    def test_the_preset_is_not_changed(self) -> None:
        load(sets=["engine.page_tokens=512"])
        assert load().engine.page_tokens == 256


class TestBadInput:
    @pytest.mark.parametrize(
        ("setting", "message"),
        [
            ("engine.page_token=512", r"nearest legal key is 'engine\.page_tokens'"),
            ("engine.capacity_factor=1.1", "engine.capacity_factor"),
            ("router.prefix_threshold=0.2", r"nearest legal key is 'router\.cache_threshold'"),
            ("engin.kind=vllm", r"nearest legal key is 'engine\.kind'"),
            ("kind=mtp", r"key of several sections: write .*engine\.kind or .*speculation\.kind"),
            ("atention_dp=8", r"nearest is 'attention_dp'"),
            ("engine=vllm", r"is a section, not a key: set one of engine\.kind"),
            ("engine.page_tokens=abc", r"engine\.page_tokens = 'abc' .*valid integer"),
            ("engine.page_tokens=256.5", r"engine\.page_tokens = 256\.5"),
            ("engine.page_tokens=true", r"engine\.page_tokens = True"),
            ("engine.mem_fraction=1.5", r"engine\.mem_fraction = 1\.5 .*less than 1"),
            ("hardware.mem_gib=nan", r"hardware\.mem_gib = nan .*finite"),
            ("engine.kind=trtllm", r"engine\.kind = 'trtllm' .*'sglang' or 'vllm'"),
            ("model.name=v4-max", r"choose one of v4-flash"),
            ("hardware.gpu=a100", r"choose one of b200"),
            ("hardware.num_gpus=0", r"greater than or equal to 1"),
        ],
    )
    def test_a_wrong_setting_says_key_rule_and_way_out(self, setting: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            load(sets=[setting])

    def test_an_option_that_is_not_modelled_says_why(self) -> None:
        with pytest.raises(ConfigError, match=r"host and storage tiers are not modelled"):
            load(sets=["engine.hicache_ratio=2"])
        with pytest.raises(ConfigError, match=r"it is `engine\.mem_fraction` here"):
            load(sets=["engine.mem_fraction_static=0.9"])

    def test_no_modelled_key_is_called_unmodelled(self) -> None:
        leaves = {key.rsplit(".", 1)[-1] for key in legal_keys()}
        assert leaves.isdisjoint(UNMODELLED)

    def test_files(self, tmp_path: Path) -> None:
        good = tmp_path / "mine.toml"
        good.write_text("[hardware]\nnum_gpus = 8\n[parallel]\nattention_dp = 8\nep = 8\n", encoding="utf-8")
        assert load(good).name == "mine"
        assert load(good).parallel.attention_dp == 8

        astray = tmp_path / "astray.toml"
        astray.write_text("attention_dp = 8\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=r"Write it in its section: 'parallel\.attention_dp'"):
            load(astray)

        unknown = tmp_path / "unknown.toml"
        unknown.write_text("[engine]\nmax_runing = 3\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=r"unknown\.toml.*'engine\.max_running'"):
            load(unknown)

        broken = tmp_path / "broken.toml"
        broken.write_text("[engine\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=r"broken\.toml.*TOML.*line 1"):
            load(broken)

        binary = tmp_path / "binary.toml"
        binary.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(ConfigError, match=r"binary\.toml.*UTF-8"):
            load(binary)

        with pytest.raises(ConfigError, match=r"no deployment file 'nowhere/x\.toml'"):
            load("nowhere/x.toml")

    def test_several_faults_are_counted(self) -> None:
        with pytest.raises(ConfigError, match="1 more like this"):
            from_dict({"engine": {"page_tokens": "x", "max_num_seqs": "y"}})

    def test_a_section_must_be_a_table(self) -> None:
        with pytest.raises(ConfigError, match=r"engine = 3"):
            from_dict({"engine": 3})


def test_a_deployment_cannot_be_changed() -> None:
    with pytest.raises(Exception, match="frozen"):
        load().engine.page_tokens = 512


def test_the_model_package_does_not_import_pydantic() -> None:
    code = "import sys, v4sim, v4sim.model.hardware, v4sim.model.layout; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
