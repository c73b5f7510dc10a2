"""The compiled program: built as a wheel, it writes the bytes that the sources write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from v4sim.metrics.calls import Calls
from v4sim.rundir import read_run

REPO = Path(__file__).resolve().parents[2]
ROOTS = ("traces", "sim", "kernels", "calib", "reports")
SAMPLE = REPO / "traces/v4traces/data/sample.parquet"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled wheel of this checkout, unpacked."""
    pytest.importorskip("hatchling", reason="a wheel is built with hatchling")
    if shutil.which("cc") is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("no C compiler, or no headers of this Python: nothing can be compiled here")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    ended = subprocess.run(
        [*build, "--wheel-dir", str(folder), str(REPO)],
        env={**os.environ, "V4SIM_COMPILE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    (archive,) = folder.glob("*.whl")
    zipfile.ZipFile(archive).extractall(folder / "site")
    return folder / "site"


def replay(import_from: str, trace: Path, output: Path, *options: str) -> str:
    """Replay a trace in a process of its own; returns what the program says it is."""
    code = "import sys; from v4sim.cli import main; sys.exit(main(sys.argv[1:]))"
    answers = []
    for arguments in (
        ["--version"],
        ["replay", str(trace), "-o", str(output), "--no-report", "--check", *options],
    ):
        ended = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "PYTHONPATH": import_from},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-4000:]
        answers.append(ended.stdout)
    return answers[0].strip()


def write_the_same(wheel: Path, trace: Path, folder: Path, *options: str) -> Calls:
    """Both programs replay it to the same bytes; returns the calls."""
    compiled, interpreted = folder / "compiled", folder / "interpreted"
    assert replay(str(wheel), trace, compiled, *options).endswith(" (compiled)")
    sources = os.pathsep.join(str(REPO / root) for root in ROOTS)
    assert not replay(sources, trace, interpreted, *options).endswith(" (compiled)")
    for name in ("calls.parquet", "result.json", "timeline.json"):
        assert (compiled / name).read_bytes() == (interpreted / name).read_bytes(), name
    return read_run(interpreted).calls


def test_both_programs_write_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    write_the_same(wheel, SAMPLE, tmp_path)


SCARCE_WITH_DRAFTS = (  # evictions, retractions, walks of several widths
    *("--set", "speculation.kind=mtp", "--set", "speculation.draft_tokens=3"),
    *("--set", "speculation.adaptive=true", "--set", "speculation.adaptive_max_rows=2"),
)
SCARCE = {
    "sglang": (
        *("--sessions", "64", "--set", "engine.kv_tokens_per_rank=240000"),
        *("--set", "engine.conservativeness=0", "--set", "engine.clip_max_new_tokens=1"),
    ),
    "vllm": ("--sessions", "32", "--set", "engine.kv_tokens_per_rank=300000", "--set", "engine.kind=vllm"),
}


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_so_do_they_where_memory_is_short(wheel: Path, tmp_path: Path, engine: str) -> None:
    calls = write_the_same(wheel, SAMPLE, tmp_path, *SCARCE_WITH_DRAFTS, *SCARCE[engine])
    assert calls["retractions"].sum() > 0


def test_so_do_they_where_a_trace_states_no_phases(wheel: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.parquet"
    table = pq.read_table(SAMPLE).replace_schema_metadata(pq.read_metadata(SAMPLE).metadata)
    pq.write_table(table.drop_columns(["phases"]), trace)
    calls = write_the_same(wheel, trace, tmp_path, *SCARCE_WITH_DRAFTS[:4])
    assert calls["drafts_accepted"].sum() > 0


def test_sources_are_in_the_wheel_beside_what_was_made_of_them(wheel: Path) -> None:
    made = sorted(wheel.rglob(f"v4sim/**/*{sysconfig.get_config_var('EXT_SUFFIX')}"))
    assert made
    for library in made:
        assert library.with_name(library.name.split(".")[0] + ".py").exists()


def test_nothing_compiled_is_left_in_the_checkout(wheel: Path) -> None:
    assert not [
        path for root in ROOTS for path in (REPO / root).rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}")
    ]
