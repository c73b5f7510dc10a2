"""What the documents promise exists: commands, options, presets, files."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*REPO.glob("*.md"), *REPO.glob("docs/*.md"), *REPO.glob("bench/*.md")])
PROGRAMS = ("v4sim", "v4traces", "v4calib")


def commands() -> list[tuple[str, str]]:
    """Every indented command line of the documents, without its comment."""
    found = []
    for document in DOCUMENTS:
        for line in document.read_text(encoding="utf-8").splitlines():
            if line.startswith("    ") and line.split()[0] in PROGRAMS:
                found.append((document.name, line.split(" #")[0].strip()))
    return found


def test_there_are_commands_to_check() -> None:
    assert len(commands()) >= 8


@pytest.mark.parametrize(("document", "line"), commands())
def test_a_documented_command_is_understood(
    document: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *words = shlex.split(line)
    main = importlib.import_module(f"{program}.cli").main
    subcommands = [words[0]]
    if words[0] == "import":
        subcommands.append(words[1])
    assert main([*subcommands, "--help"]) == 0, f"{document}: {line}"
    options = set(re.findall(r"(?<![\w-])--?[a-z-]+", capsys.readouterr().out))
    used = {word for word in words if re.fullmatch(r"--?[a-z-]+", word)}
    assert used <= options, f"{document}: {line}"


def test_links_lead_somewhere() -> None:
    lost = [
        f"{document.name} -> {target}"
        for document in DOCUMENTS
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8"))
        if not (document.parent / target).exists()
    ]
    assert lost == []


def test_the_result_page_names_the_keys_of_a_result(tmp_path: Path) -> None:
    """docs/run.md is held against a real result.json."""
    trace, run = tmp_path / "few.parquet", tmp_path / "run"
    made = ["synth", "--sessions", "1", "--context-cap", "32768", "--seed", "3", "-o", str(trace)]
    assert importlib.import_module("v4traces.cli").main(made) == 0
    assert (
        importlib.import_module("v4sim.cli").main(["replay", str(trace), "-o", str(run), "--no-report"]) == 0
    )
    result = json.loads((run / "result.json").read_text())
    named = set(re.findall(r"`(\w+)`", (REPO / "docs/run.md").read_text(encoding="utf-8")))
    assert set(result) - named == {"schema_version"}  # the heading has it, with its number
    assert set(result["full"]) - named == set()


def test_the_trace_page_names_every_column() -> None:
    from v4traces.schema import COLUMN_NAMES

    named = set(re.findall(r"`(\w+)`", (REPO / "docs/trace.md").read_text(encoding="utf-8")))
    assert set(COLUMN_NAMES) - named == set()
