"""Names that people type or import. A change here is a change of the interface: say it in CHANGELOG.md."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import v4sim as package

OPTIONS = {
    "backtest": {
        "--draws",
        "--force",
        "--help",
        "--json",
        "--notes",
        "--only",
        "--report",
        "--seeds",
        "--table",
    },
    "compare": {"--force", "--help", "--output"},
    "export": {"--force", "--help", "--output", "--trace"},
    "limiter": {
        "--arrivals",
        "--deployment",
        "--force",
        "--help",
        "--jobs",
        "--json",
        "--no-report",
        "--objective",
        "--only",
        "--output",
        "--profile",
        "--repeats",
        "--seed",
        "--sessions",
        "--set",
        "--step",
        "--window",
    },
    "replay": {
        "--arrivals",
        "--check",
        "--deployment",
        "--force",
        "--help",
        "--json",
        "--no-report",
        "--output",
        "--profile",
        "--seed",
        "--sessions",
        "--set",
        "--stepwise",
        "--window",
    },
    "observe": {
        "--deployment",
        "--force",
        "--format",
        "--help",
        "--json",
        "--profile",
        "--seed",
        "--set",
        "--toml",
        "--trace",
    },
    "presets": {"--help"},
    "show": {"--help", "--json", "--set"},
    "report": {"--force", "--help", "--output"},
}
HEAVY = ["jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "pydantic", "rich", "scipy", "simpy", "torch"]


@pytest.mark.parametrize("command", sorted(OPTIONS))
def test_options(v4sim: Callable[..., Any], command: str) -> None:
    outcome = v4sim(command, "--help")
    assert outcome.code == 0
    assert set(re.findall(r"(?<![\w-])--[a-z-]+", outcome.out)) == OPTIONS[command]


def test_commands(v4sim: Callable[..., Any]) -> None:
    outcome = v4sim("--help")
    assert outcome.code == 0
    listed = outcome.out[outcome.out.index("Commands:") :]
    assert set(re.findall(r"^  (\w+) ", listed, re.MULTILINE)) == set(OPTIONS)


def test_version(v4sim: Callable[..., Any]) -> None:
    assert v4sim("--version").out == f"v4sim {package.__version__}\n"


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from v4sim.cli import main; code = main(['--help']);"
        f"print('loaded:', *sorted(set({HEAVY!r}) & set(sys.modules))); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].strip() == "loaded:"


def test_the_installed_script_and_the_module_are_one_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "v4sim.cli", "presets"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0].startswith("4xB200 V4-Flash DPA4+EP4 sglang")
