"""Fixtures of the report tests: modules that build run directories and take pages apart, and a run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import v4reports


def load(name: str) -> ModuleType:
    """A helper module that lies beside this file (tests are not a package)."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def runbuilder() -> ModuleType:
    load("rundraw")
    return load("runbuilder")


@pytest.fixture(scope="session")
def htmlpage() -> ModuleType:
    return load("htmlpage")


@pytest.fixture(scope="session")
def _built_run(runbuilder: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = runbuilder.build(tmp_path_factory.mktemp("runs") / "run")
    return path


@pytest.fixture
def run_dir(_built_run: Path, tmp_path: Path) -> Path:
    """A run directory of the test's own; it may write into it."""
    copy = tmp_path / "run"
    copy.mkdir()
    for name in ("result.json", "calls.parquet"):
        (copy / name).write_bytes((_built_run / name).read_bytes())
    return copy


@pytest.fixture(scope="session")
def full_page(_built_run: Path, htmlpage: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The parsed report of an unchanged run; not to be modified."""
    out = tmp_path_factory.mktemp("pages") / "report.html"
    return htmlpage.parse(v4reports.render(_built_run, out).read_text(encoding="utf-8"))
