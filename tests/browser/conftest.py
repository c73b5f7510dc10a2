"""One headless Chromium for all browser tests, and the run directories that they look at."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import v4reports

HERE = Path(__file__).parent
HOW = "install it with: apt-get install chromium"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The browser's program. In CI its absence is a failure: a check that never runs checks nothing."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"there is no Chromium on this machine, and CI needs it; {HOW}")
        pytest.skip(f"there is no Chromium on this machine; {HOW}")
    return Path(found)


@pytest.fixture(scope="session")
def browser(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    devtools = load(HERE / "devtools.py")
    with devtools.Browser(chromium, tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """HTML files: a full run, one of many ranks with long names, a bare one, a comparison, a backtest."""
    load(HERE.parent / "reports" / "rundraw.py")
    builder = load(HERE.parent / "reports" / "runbuilder.py")
    root = tmp_path_factory.mktemp("runs")

    def long_names(result: dict[str, dict[str, object]]) -> None:
        result["manifest"]["deployment"]["name"] = "n" * 300
        result["manifest"]["note"] = "x" * 500
        result["headline"]["sentence"] = "A_single_word_" * 12
        result["headline"]["unit"] = "u" * 200
        result["headline"]["number"] = 0.000938
        result["steady"]["blocked"]["r" * 60] = {"calls": 3, "time_s": 40.0}
        result["assumptions"] = ["/".join(["path"] * 80)]

    full = builder.build(root / "full")
    wide = builder.build(root / "wide", num_ranks=32, num_calls=900, seed=3, change=long_names)
    bare = root / "bare"
    bare.mkdir()
    (bare / "result.json").write_text('{"schema_version": 1}')
    return {
        "full": v4reports.render(full),
        "wide": v4reports.render(wide),
        "bare": v4reports.render(bare),
        "compare": v4reports.compare(full, wide),
        "backtest": v4reports.backtest(
            load(HERE.parent / "reports" / "backtestdoc.py").many(), root / "backtest.html"
        ),
    }
