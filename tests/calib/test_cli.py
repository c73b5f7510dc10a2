"""The v4calib command: results on stdout, one paragraph on stderr, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from v4calib.cli import main


def test_show_lists_operations_and_prints_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "b200", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"operation", "domain", "kind", "p95_error", "compared_rows", "source"} == set(rows[0])
    assert main(["show", "b200", "index_scan.v4-flash.fp8"]) == 0
    assert "hbm  entries" in capsys.readouterr().out
    assert main(["show", "b200", "hca_prefill.sglang.v4-flash.tp1", "--json"]) == 0
    assert {"new_tokens", "past_tokens", "us"} == set(json.loads(capsys.readouterr().out)[0])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["show", "b900"], "There is no profile 'b900'"),
        (["show", "b200", "csa_decode.v5"], "has no operation"),
        (["check", "b200"], "--against-published"),
        (["import", "aiconfigurator", "--wheel", "nothing.whl"], "is not aiconfigurator-core"),
        (["import", "elsewhere"], "No such command"),
        (["chek"], "No such command"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_2(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert words in shown.err
    assert shown.err.startswith("v4calib: ")
    assert len(shown.err.strip().splitlines()) == 1


def test_import_and_check_with_the_real_tables(
    published: object, tmp_path: Path, capsys: pytest.CaptureFixture[str], wheel_option: list[str]
) -> None:
    command = ["import", "aiconfigurator", "--gpu", "h100", "-o", str(tmp_path), *wheel_option]
    assert main(command) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "h100.json")
    assert main(command) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["h100.json"]
    capsys.readouterr()
    assert main(["check", str(tmp_path / "h100.json"), "--against-published", "--json", *wheel_option]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["good"]
    assert report["total"]["median"] < 0.05
    assert main(["import", "aiconfigurator", "--gpu", "a100", "-o", str(tmp_path), *wheel_option]) == 2
    assert "a100" in capsys.readouterr().err
