"""Without a vLLM, with another one, or with options that nobody would read: refused in a sentence."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from v4sim import config
from v4sim.config.installed import TRIED
from v4sim.engine.native import vllm_engine
from v4sim.errors import ConfigError
from v4sim.model import spec
from v4sim.prefix import PrefixIndex
from v4traces import CallRow, TraceMetadata, TraceWriter, read_table

VLLM = "8xB200 V4-Flash DP8 vllm"
NATIVE = "engine.scheduler=vllm-native"
no_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="a vLLM is installed")


@no_vllm
def test_without_vllm_the_error_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=f"there is none: install v4sim .*tried with {TRIED}"):
        config.resolve(config.load(VLLM, [NATIVE]))


@no_vllm
def test_the_command_line_ends_with_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from v4sim.cli import main

    path = tmp_path / "trace.parquet"
    with TraceWriter(path, TraceMetadata("hand", "synthetic")) as writer:
        writer.append([CallRow(session_id="a", turn=0, prompt_tokens=9, output_tokens=1, arrival_s=0.0)])
    assert main(["replay", str(path), "-d", VLLM, "--set", NATIVE, "-o", str(tmp_path / "run")]) == 2
    assert "vllm-native" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@no_vllm
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
    with pytest.raises(ConfigError, match=f"vLLM {TRIED} does not offer .* ModuleNotFoundError: No module"):
        vllm_engine.engines(options, spec("v4-flash"), PrefixIndex(read_table(path), 1))


@pytest.mark.parametrize(
    ("preset", "sets", "says"),
    [
        ("4xB200 V4-Flash DPA4+EP4 sglang", [], "set engine.kind = 'vllm'"),
        (VLLM, ["engine.version=0.29"], "leave engine.version out"),
        (VLLM, ["engine.swa_veto=bounded_replay"], "which hits are legal"),
        (VLLM, ["model.name=v4.1-flash"], "not those of v4.1-flash"),
        (
            VLLM,
            ["speculation.kind=mtp", "speculation.draft_tokens=1", "speculation.adaptive=true"],
            "speculation.adaptive",
        ),
    ],
)
def test_what_would_not_be_read_is_refused(installed: None, preset: str, sets: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config.resolve(config.load(preset, [NATIVE, *sets]))


def test_the_version_is_the_installed_one(installed: None) -> None:
    assert config.resolve(config.load(VLLM, [NATIVE])).engine.version == TRIED
