"""What every tracked file must look like: size, docstring, no path of the machine it was written on."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
MAX_LINES = 320
MAX_TEST_LINES = 400  # a test file is read one test at a time
BINARY = {".parquet", ".png", ".xz", ".gz"}


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout: there is no list of tracked files")
    names = listing.stdout.decode().split("\0")
    return [REPO / name for name in names if name and (REPO / name).is_file()]


def python_files() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py"]


def test_files_stay_short_enough_to_read() -> None:
    long = {
        str(path.relative_to(REPO)): lines
        for path in python_files()
        if (lines := len(path.read_text(encoding="utf-8").splitlines()))
        > (MAX_TEST_LINES if path.is_relative_to(REPO / "tests") else MAX_LINES)
    }
    assert long == {}


def test_every_module_says_what_it_models() -> None:
    silent = []
    for path in python_files():
        text = path.read_text(encoding="utf-8")
        if text.strip() and not ast.get_docstring(ast.parse(text)):
            silent.append(str(path.relative_to(REPO)))
    assert silent == []


def test_no_path_of_a_machine_is_in_the_project() -> None:
    folders = "|".join(["work", "root", "tmp"])
    machine_path = re.compile(rf"(?<![\w./~-])/(?:{folders})/\w")
    found = []
    for path in tracked():
        if path.suffix in BINARY or "tests" in path.relative_to(REPO).parts[:1]:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if machine_path.search(line) or str(REPO) in line:
                found.append(f"{path.relative_to(REPO)}:{number}: {line.strip()[:80]}")
    assert found == []


def test_only_small_files_are_committed() -> None:
    """Traces and runs stay outside the project; the bundled sample is small on purpose."""
    large = {str(p.relative_to(REPO)): p.stat().st_size for p in tracked() if p.stat().st_size > 3_000_000}
    assert large == {}


def test_the_default_install_has_no_gpu_library() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[><=!~\[ ;]", need)[0] for need in project["dependencies"]}
    assert names.isdisjoint({"torch", "triton", "scipy", "ray", "nvidia-ml-py"})
    assert {"simpy", "numpy", "pyarrow", "pydantic", "typer"} <= names


def test_every_pin_is_exact() -> None:
    lines = (REPO / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.+]+", pin)] == []


def test_every_make_target_is_explained() -> None:
    makefile = (REPO / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets
    explained = set(re.findall(r"^([a-z]+):[^=\n]*## \S", makefile, re.MULTILINE))
    assert set(targets.group(1).split()) - explained == {"stale"}


def test_ci_runs_what_a_developer_runs() -> None:
    assert re.search(r"^make check$", (REPO / ".ci/run").read_text(), re.MULTILINE)
