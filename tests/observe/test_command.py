"""`v4sim observe` from a shell: text, JSON, and a fragment that a deployment can be loaded with."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from v4sim.cli import main
from v4sim.config import Deployment
from v4sim.observe.formats.base import Told
from v4traces import CallRow, TraceMetadata, TraceWriter

SETS = ["parallel.attention_tp=4", "parallel.attention_dp=1", "parallel.ep=1", "speculation.kind=off"]
SETS += ["speculation.draft_tokens=0"]


@pytest.fixture
def arguments(
    rows: list[CallRow],
    deployed: Callable[..., Deployment],
    told: Callable[..., list[Told]],
    log_of: Callable[[Sequence[Told], str], Path],
    tmp_path: Path,
) -> list[str]:
    """A log of a deployment whose steps take 9 ms of the host, and the trace that was sent."""
    trace = tmp_path / "sent.parquet"
    with TraceWriter(trace, TraceMetadata("hand", "synthetic")) as writer:
        writer.append(rows)
    log = log_of(told(deployed(cpu_step_us=9_000.0)), "aiperf")
    return ["observe", str(log), "--trace", str(trace), *(f"--set={text}" for text in SETS)]


def test_text_json_and_fragment_agree(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fragment = tmp_path / "fitted.toml"
    assert main([*arguments, "--json", "--toml", str(fragment)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["formats"] == ["aiperf"]
    assert found["calls"] == 144
    step = found["constants"]["cpu_step_us"]
    assert step["fitted"]
    assert step["value"] == pytest.approx(9_000, rel=0.05)
    tpot = next(row for row in found["figures"] if row["name"] == "tpot_ms p50")
    assert tpot["error"] < -0.3
    assert abs(tpot["error_fitted"]) < 0.01
    written = tomllib.loads(fragment.read_text(encoding="utf-8"))
    assert written["engine"]["cpu_step_us"] == pytest.approx(step["value"], rel=1e-4)
    assert set(written["engine"]) <= {"cpu_step_us", "cpu_cached_token_us", "cpu_request_us"}


def test_the_text_leads_with_what_was_seen(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split() == ["calls", "seen", "predicted", "error", "fitted", "error"]
    assert "engine.cpu_step_us" in out
    assert "144 calls in aiperf logs" in err


def test_a_fragment_is_not_overwritten_without_force(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fragment = tmp_path / "fitted.toml"
    fragment.write_text("mine")
    assert main([*arguments, "--toml", str(fragment)]) == 2
    assert "--force" in capsys.readouterr().err
    assert fragment.read_text() == "mine"
