"""`v4calib run` and its neighbours: exit codes, what may be imported, the chain on a CPU where torch is."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from v4calib.cli import main
from v4calib.journal import Journal

HAVE_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAVE_TORCH, reason="torch is not installed: pip install 'v4sim[gpu]'")
# A GPU image has torch, triton, numpy, scipy, nvidia-ml-py, typer (of late with pydantic) and rich: no more.
BLOCKED = (
    *("pyarrow", "pandas", "matplotlib", "jinja2", "simpy", "ray", "aiconfigurator_core"),
    *("v4traces.table", "v4sim.config", "v4reports"),
)
BLOCKER = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in {BLOCKED!r}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocker())
from v4calib.cli import main
"""


def isolated(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKER + code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
        timeout=600,
    )


def has_cuda() -> bool:
    if not HAVE_TORCH:
        return False
    import torch

    return bool(torch.cuda.is_available())


@pytest.mark.skipif(has_cuda(), reason="there is a GPU here")
def test_no_gpu_is_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-o", str(tmp_path / "profile.json")]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.strip().splitlines()) == 1
    assert "torch is not installed" in shown.err or "no CUDA device" in shown.err
    assert list(tmp_path.iterdir()) == []
    assert main(["doctor"]) == 1
    shown = capsys.readouterr()
    assert "no  device" in shown.out


@needs_torch
@pytest.mark.skipif(has_cuda() or shutil.which("make") is None, reason="there is a GPU here, or no make")
def test_make_gpu_needs_nothing_but_a_python_and_says_what_is_missing() -> None:
    """No venv is made, and it stops at the first finding."""

    def make(python: str) -> subprocess.CompletedProcess[str]:
        command, folder = ["make", "gpu", f"GPU_PYTHON={python}"], Path(__file__).parents[2]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    done = make(sys.executable)
    assert done.returncode == 2
    assert "no  device" in done.stdout
    assert "verify" not in done.stdout
    bare = make(f"{sys.executable} -S -E")  # without its site-packages
    assert bare.returncode == 2
    assert "GPU_PYTHON=" in bare.stderr
    assert "doctor" not in bare.stdout


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["run", "--quick", "--full"], "exclude each other"),
        (["run", "--device", "cpu", "--full"], "needs a GPU"),
        (["run", "--device", "tpu"], "choose one of cuda, cpu"),
        (["run", "--ops", "topp"], "there is no such operation"),
        (["run", "--model", "v5"], "there are kernels for"),
        (["run", "--device", "cpu", "--gpu", "a100"], "describes b200"),
        (["plan", "--gpu", "a100"], "not a GPU"),
        (["fit", "nowhere.rows.jsonl"], "no such file of rows"),
        (["check", "nowhere.json"], "There is no profile"),
        (["diff", "h200", "h900"], "There is no profile"),
    ],
)
def test_bad_input_is_a_line_and_exit_2(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert len(shown.err.strip().splitlines()) == 1


def test_plan_lists_points_and_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--quick", "--gpu", "h200"]) == 0
    text = capsys.readouterr().out
    assert "about" in text.splitlines()[0]
    assert "sm_90 has no FP4 matrix unit" in text
    assert main(["plan", "--full", "--gpu", "b200", "--ops", "index_scan", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["operations"][0]["operation"] == "index_scan"
    assert data["minutes"] < 60


def test_planning_and_fitting_need_only_what_a_gpu_image_has(
    fake_device: Callable[..., Any], measure_all: Callable[..., Journal]
) -> None:
    journal = measure_all(fake_device(), ["index_scan,topk,copy,host_link"])
    code = f"sys.exit(main(['plan']) or main(['fit', {str(journal.path)!r}]) or main(['show', 'h200']))"
    done = isolated(code)
    assert done.returncode == 0, done.stderr
    profile = json.loads(journal.path.with_name("run.json").read_text())
    assert profile["operations"]["index_scan.v4-flash.fp8"]["provenance"] == "v4calib.measured"


@needs_torch
def test_run_fit_check_and_replay_on_a_cpu(tmp_path: Path) -> None:
    """The chain with torch references, and nothing imported that a GPU image lacks."""
    profile = tmp_path / "cpu.json"
    code = (
        f"sys.exit(main(['run', '--device', 'cpu', '--ops', 'topk,mhc,compressor', '-o', {str(profile)!r}]))"
    )
    done = isolated(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(profile)
    data = json.loads(profile.read_text())
    assert data["name"] == "cpu-as-b200"
    measured = data["provenances"]["v4calib.measured"]
    assert measured["gpu"].startswith("CPU")
    assert {
        k.split(".")[0] for k, v in data["operations"].items() if v["provenance"] == "v4calib.measured"
    } >= {
        "topk_decode",
        "mhc",
    }
    assert main(["fit", str(profile), "--force"]) == 0
    assert json.loads(profile.read_text()) == data
    assert main(["check", str(profile)]) in (0, 1)
    assert main(["merge", "b200", str(profile), "-o", str(tmp_path / "no.json")]) == 2
    from v4sim.cli import main as simulate
    from v4traces.cli import main as traces

    trace, replayed = tmp_path / "few.parquet", tmp_path / "replayed"
    made = ["synth", "--sessions", "1", "--context-cap", "32768", "--seed", "3", "-o", str(trace)]
    assert traces(made) == 0
    options = ["-p", str(profile), "-o", str(replayed), "--no-report", "--check"]
    assert simulate(["replay", str(trace), *options]) == 0
    result = json.loads((replayed / "result.json").read_text())
    kinds = {row["op"]: row["kind"] for row in result["provenance"]}
    assert kinds["topk_decode.v4-flash"] == "measured"


@needs_torch
def test_counts_are_those_of_the_kernels() -> None:
    """A plan without torch counts what the kernels count."""
    code = """
from v4calib.grid import grid, contexts_of
from v4calib.operations import OPERATIONS
from v4calib.operations.layers import LayerKind, layer_matrices
from v4kernels import norm_rope
from v4kernels import hca_attention, index_scan, layouts, matrices, mhc, moe_grouped_gemm
from v4kernels import shapes, sparse_attention, topk
def same(mine, theirs):
    for f in ("read_bytes", "write_bytes", "matrix_flops", "fp32_ops"):
        assert getattr(mine, f) == getattr(theirs, f), (f, mine, theirs)
axes = grid("quick")
for name in ("v4-flash", "v4-pro"):
    m = shapes.model(name)
    op = OPERATIONS["index_scan"]
    for p in op.points(name, axes):
        fmt = layouts.INDEX_FP8 if p.word("dtype") == "fp8" else layouts.INDEX_FP4
        same(op.work(p), index_scan.work(p["width"], [c // 4 for c in contexts_of(p)], m.index_heads, fmt))
    op = OPERATIONS["topk"]
    for p in op.points(name, axes):
        same(op.work(p), topk.work(op.lengths(p), m.index_topk))
    op = OPERATIONS["hca_attention"]
    for p in op.points(name, axes):
        same(op.work(p), hca_attention.work([c // 128 for c in contexts_of(p)], p["width"], m.heads))
    op = OPERATIONS["mhc"]
    for p in op.points(name, axes):
        same(op.work(p), mhc.work(p["tokens"], m.hidden))
    op = OPERATIONS["experts"]
    for p in op.points(name, axes):
        same(op.work(p), moe_grouped_gemm.work(op._counts(p), m, p.word("activation")))
    op = OPERATIONS["sparse_attention"]
    for p in op.points(name, axes):
        if p["tokens"] == 1:
            same(op.work(p), sparse_attention.work(1, m.heads, p["selected"]))
    op = OPERATIONS["norm_rope"]
    for p in op.points(name, axes):
        for s in op._steps(p):
            done = {"norm": s.norm, "turn": s.turn, "quantise": s.quantise}
            same(s.work(p["tokens"]), norm_rope.work(p["tokens"] * s.rows, s.width, **done))
    added = {
        LayerKind("csa-c4", "csa", 1, ("c4", "index"), True): matrices.csa_matrices(m),
        LayerKind("hca", "hca", 1, ("c128",)): matrices.hca_matrices(m),
        LayerKind("bare", "csa", 1): [],
    }
    for layer, theirs in added.items():
        for tp in (1, 4):
            whole = matrices.attention_matrices(m, m.heads // tp) + theirs
            mine = layer_matrices(name, layer, tp)
            assert sum(x.parameters for x in mine) == sum(x.parameters for x in whole)
"""
    done = isolated(code)
    assert done.returncode == 0, done.stderr


@needs_torch
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("v4-flash", ["index_scan", "index_scan_prefill", "topk", "topk_prefill"]),
        ("v4-flash", ["sparse_attention", "hca_attention", "hca_prefill"]),
        ("v4-flash", ["compressor", "mhc", "host_link", "norm_rope", "translate", "gather"]),
        ("v4.1-flash", ["sparse_attention", "compressor", "candidate_pool", "candidate_scan"]),
    ],
)
def test_cases_launch_the_kernels_and_agree_with_their_references(model: str, names: list[str]) -> None:
    """In Triton's interpreter: what a GPU run builds, launches and verifies; and a wrong result is seen."""
    code = f"""
import torch
from v4calib.grid import grid
from v4calib.operations import OPERATIONS
# A program of the interpreter takes milliseconds.
smaller = {{"mhc": {{"tokens": 3}}, "norm_rope": {{"tp": 8}}}}
for name in {names!r}:
    op, done = OPERATIONS[name], set()
    for point in op.points({model!r}, grid("quick")):
        twin = op.twin(point).with_sizes(**smaller.get(name, {{}}))
        if op.configuration(twin) in done or "width" in dict(twin.sizes) and twin["width"] > 2:
            continue
        done.add(op.configuration(twin))
        case = op.build(twin, "cpu", 1 if op.group == "links" else 2, True)
        case.launch(case.copies - 1)
        assert case.verify() is None, (twin.key, case.verify())
    assert done, name
"""
    done = isolated(code, TRITON_INTERPRET="1", TRITON_DEFAULT_FP_FUSION="1")
    assert done.returncode == 0, done.stderr


@needs_torch
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_kernel_that_is_wrong_is_told_from_its_reference() -> None:
    """triton#11734, #11737: a product with a wrong scale. The case says so before anything is timed."""
    code = """
from v4calib.grid import grid
from v4calib.operations import OPERATIONS
from v4kernels import index_scan as kernel, topk as topk_kernel
right = kernel.index_scan
def wrong(q, q_scale, weights, *rest, **named):
    return right(q, q_scale, weights * 1.001, *rest, **named)
kernel.index_scan = wrong
op = OPERATIONS["index_scan"]
point = op.twin(op.points("v4-flash", grid("quick"))[0])
assert "differs from its reference" in op.build(point, "cpu", 1, True).verify()
chosen = topk_kernel.topk
topk_kernel.topk = lambda logits, counts, k: chosen(-logits, counts, k)
op = OPERATIONS["topk"]
point = op.twin(op.points("v4-flash", grid("quick"))[0])
assert "other columns" in op.build(point, "cpu", 1, True).verify()
"""
    done = isolated(code, TRITON_INTERPRET="1", TRITON_DEFAULT_FP_FUSION="1")
    assert done.returncode == 0, done.stderr


def test_ctrl_c_keeps_what_is_measured_and_resume_goes_on(
    fake_device: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import v4calib.devices

    device = fake_device()
    device.clock.interrupt_after = 300
    monkeypatch.setattr(v4calib.devices, "open_device", lambda *a: device)
    target = tmp_path / "profile.json"
    command = ["run", "--ops", "index_scan,copy", "-o", str(target)]
    assert main(command) == 130
    shown = capsys.readouterr()
    assert "rows are kept in" in shown.err
    assert "--resume" in shown.err
    assert "\r" not in shown.err, "no progress off a terminal"
    assert not target.exists()
    assert main(command) == 2
    assert "--resume" in capsys.readouterr().err
    device.clock.interrupt_after = None
    kept = len(device.opened)
    assert main([*command, "--resume"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(target)
    points = len(target.with_name("profile.rows.jsonl").read_text().splitlines()) - 1
    refused = sum(
        "unsupported" in line for line in target.with_name("profile.rows.jsonl").read_text().splitlines()
    )
    assert len(device.opened) == points - refused + 1, "only the interrupted point was opened twice"
    assert kept > 1


def test_a_time_limit_ends_a_run_with_what_it_has(
    fake_device: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import time

    import v4calib.devices

    device, target = fake_device(), tmp_path / "profile.json"
    monkeypatch.setattr(v4calib.devices, "open_device", lambda *a: device)
    monkeypatch.setattr(time, "monotonic", lambda: 0.5 * device.read)  # two readings a row: a row a second
    command = ["run", "--ops", "topk", "-o", str(target)]
    assert main([*command, "--minutes", "0.5"]) == 0
    shown = capsys.readouterr()
    assert "the limit of 0.5 minutes is reached" in shown.err
    kept = len(target.with_name("profile.rows.jsonl").read_text().splitlines()) - 1
    assert 30 <= kept <= 32
    assert main([*command, "--resume"]) == 0
    assert len(target.with_name("profile.rows.jsonl").read_text().splitlines()) - 1 > kept
