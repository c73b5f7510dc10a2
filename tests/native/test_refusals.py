"""Without the engine, with another one, or with options that nobody would read: refused in a sentence."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from loop import sglang_options

from v4sim import config
from v4sim.config.installed import NATIVE, Native, unlike_tried
from v4sim.engine.native import sglang_engine, vllm_engine
from v4sim.errors import ConfigError
from v4sim.model import spec
from v4sim.prefix import PrefixIndex
from v4traces import CallRow, TraceMetadata, TraceWriter, read_table

VLLM, SGLANG = "8xB200 V4-Flash DP8 vllm", "4xB200 V4-Flash DPA4+EP4 sglang"
PRESETS = {"vllm-native": VLLM, "sglang-native": SGLANG}
engines = pytest.mark.parametrize("native", NATIVE.values(), ids=list(NATIVE))
bare = pytest.mark.skipif(
    any(importlib.util.find_spec(native.kind) for native in NATIVE.values()), reason="an engine is installed"
)


@bare
@engines
def test_without_the_engine_the_error_says_what_to_install(native: Native) -> None:
    says = f"runs the {native.name} that is .*there is none: install v4sim .*tried with {native.tried}"
    with pytest.raises(ConfigError, match=says):
        config.resolve(config.load(PRESETS[native.scheduler], [f"scheduler={native.scheduler}"]))


@bare
@engines
def test_the_command_line_ends_with_bad_input(
    native: Native, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by the short form, as in `--set scheduler=vllm-native`."""
    from v4sim.cli import main

    path = tmp_path / "trace.parquet"
    with TraceWriter(path, TraceMetadata("hand", "synthetic")) as writer:
        writer.append([CallRow(session_id="a", turn=0, prompt_tokens=9, output_tokens=1, arrival_s=0.0)])
    asked = ["--set", f"scheduler={native.scheduler}", "-o", str(tmp_path / "run")]
    assert main(["replay", str(path), "-d", PRESETS[native.scheduler], *asked]) == 2
    assert f"install v4sim into the environment of your {native.name}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@bare
def test_a_vllm_that_lacks_something_is_named_with_its_version(installed: None, tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    with TraceWriter(path, TraceMetadata("hand", "synthetic")) as writer:
        writer.append([CallRow(session_id="a", turn=0, prompt_tokens=9, output_tokens=1)])
    options = vllm_engine.Options(
        page_tokens=256,
        num_blocks=100,
        max_model_len=4096,
        max_batched_tokens=1024,
        max_num_seqs=4,
        long_prefill_token_threshold=0,
        reserve_full_isl=True,
        watermark=0.0,
        async_scheduling=True,
        prefix_cache=True,
        window_retention=None,
        by_priority=False,
        draft_kind="off",
        draft_tokens=0,
        draft_layers=0,
        index_dtype="fp4",
    )
    tried = NATIVE["vllm-native"].tried
    with pytest.raises(ConfigError, match=f"vLLM {tried} does not offer .* ModuleNotFoundError: No module"):
        vllm_engine.engines(options, spec("v4-flash"), PrefixIndex(read_table(path), 1))


@bare
def test_an_sglang_that_lacks_something_is_named_with_its_version(installed: None) -> None:
    tried = NATIVE["sglang-native"].tried
    with pytest.raises(ConfigError, match=f"SGLang {tried} does not offer .* ModuleNotFoundError: No module"):
        sglang_engine.engines(sglang_options(), None)  # type: ignore[arg-type]


def test_an_engine_that_lacks_a_package_of_its_own_needs_that(installed: None) -> None:
    lacks = ModuleNotFoundError("No module named 'IPython'", name="IPython.display")
    says = str(unlike_tried("sglang-native", lacks))
    assert "cannot be imported" in says
    assert "No module named 'IPython'. Install it with what it depends on" in says


MTP = ["speculation.kind=mtp", "speculation.draft_tokens=1"]


@pytest.mark.parametrize(
    ("scheduler", "sets", "says"),
    [
        ("vllm-native", ["engine.kind=sglang"], "set engine.kind = 'vllm'"),
        ("vllm-native", ["engine.version=0.29"], "leave engine.version out"),
        ("vllm-native", ["engine.swa_veto=bounded_replay"], "which hits are legal"),
        ("vllm-native", ["model.name=v4.1-flash"], "not that of v4.1-flash"),
        ("vllm-native", [*MTP, "speculation.adaptive=true"], "speculation.adaptive is not handed"),
        ("vllm-native", ["engine.prefill_schedule_interval=4"], "prefill_schedule_interval is not handed"),
        ("sglang-native", ["engine.kind=vllm"], "set engine.kind = 'sglang'"),
        ("sglang-native", ["engine.version=0.5.15"], "leave engine.version out"),
        ("sglang-native", ["engine.swa_veto=recompute_window"], "which hits are legal"),
        ("sglang-native", ["model.name=v4.1-flash"], "not that of v4.1-flash"),
        ("sglang-native", [*MTP, "speculation.adaptive=true"], "speculation.adaptive is not handed"),
        ("sglang-native", ["engine.prefill_delayer=true"], "prefill_delayer is not handed"),
        ("sglang-native", ["engine.strip_output_cache=true"], "strip_output_cache is not handed"),
        ("sglang-native", ['cache.identity=["snapshot_id"]'], "cache.identity is not handed"),
    ],
)
def test_what_would_not_be_read_is_refused(
    installed: None, scheduler: str, sets: list[str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        config.resolve(config.load(PRESETS[scheduler], [f"scheduler={scheduler}", *sets]))


@engines
def test_the_version_is_the_installed_one(installed: None, native: Native) -> None:
    deployment = config.load(PRESETS[native.scheduler], [f"scheduler={native.scheduler}"])
    assert config.resolve(deployment).engine.version == native.tried
