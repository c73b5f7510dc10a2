"""The project's own targets: nothing is skipped silently; a fast subset is run through the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from v4sim.backtest.deploy import deploy
from v4sim.backtest.observe import family_of
from v4sim.backtest.replay import builtin_cost
from v4sim.backtest.schema import Target, read_targets
from v4sim.backtest.workload import at_point, build, is_load
from v4sim.cli import main
from v4sim.errors import ConfigError

TARGETS = read_targets("built-in").targets
REFUSED = {"V21-h200": "topology is not stated", "V21-gb300": "topology is not stated"}


def test_the_file_is_whole() -> None:
    assert read_targets("built-in").refused == ()
    assert len(TARGETS) == 33
    assert sum(len(t.metrics) for t in TARGETS) == 83


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.id)
def test_a_target_can_be_run_or_is_refused_with_its_reason(target: Target) -> None:
    if target.id in REFUSED:
        with pytest.raises(ConfigError, match=REFUSED[target.id]):
            deploy(target)
        return
    builtin_cost()(deploy(target).deployment)
    for metric in target.metrics:
        assert family_of(metric.name) is not None
        work = at_point(target, metric.at)
        if is_load(work) and work.isl is not None:
            assert build(work, 1 << 20, 0).table.n > 0


def test_the_command_writes_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, table = tmp_path / "out.json", tmp_path / "table.md"
    words = [
        "backtest",
        "--only",
        "V14-cap-TP8",
        "--only",
        "V21-h200",
        "--json",
        str(out),
        "--table",
        str(table),
    ]
    assert main(words) == 0
    assert "1 of 2 targets run, 1 refused" in capsys.readouterr().out
    data = json.loads(out.read_text())
    assert data["refused"][0]["target"] == "V21-h200"
    capacity = next(row for row in data["rows"] if row["metric"] == "kv_tokens_per_replica")
    assert abs(capacity["error"]) < 0.03
    assert "V14-cap-TP8" in table.read_text()
    before = out.read_bytes()
    assert main(words) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0
    assert out.read_bytes() == before


def test_an_unknown_target_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backtest", "--only", "nothing"]) == 2
    assert "no such target" in capsys.readouterr().err
