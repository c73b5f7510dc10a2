"""Fixtures of the report tests: a module that builds run directories, and one such directory."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def runbuilder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("runbuilder", Path(__file__).with_name("runbuilder.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run_dir(runbuilder: ModuleType, tmp_path: Path) -> Path:
    path: Path = runbuilder.build(tmp_path / "run")
    return path
