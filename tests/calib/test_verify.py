"""`v4calib verify`: one small point a configuration, a wrong kernel is named, and nothing is timed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from v4calib.cli import main
from v4calib.grid import Grid
from v4calib.plan import jobs_for
from v4calib.verify import verify


def test_a_verdict_for_every_configuration(fake_device: Callable[..., Any], tiny_grid: Grid) -> None:
    device = fake_device(
        wrong={"topk": "topk selects other columns"}, hangs={"gather": "no ptxas"}, failing={"mhc"}
    )
    jobs = jobs_for(["index_scan,topk,gather,mhc,collective"], ["v4-flash"], tiny_grid)
    found = list(verify(device, jobs))
    by_name = {v.operation: v for v in found}
    assert (by_name["topk"].ok, by_name["topk"].words) == (False, "topk selects other columns")
    assert (by_name["gather"].ok, by_name["gather"].words) == (False, "no ptxas")
    assert "out of memory" in by_name["mhc"].words
    assert by_name["collective"].ok is None
    scans = {v.configuration: v.ok for v in found if v.operation == "index_scan"}
    assert scans["v4-flash fp8 width 4"] is True
    assert scans["v4-flash fp4 width 4"] is None, "not on Hopper"
    assert len(found) == len({(v.operation, v.configuration) for v in found})
    assert device.clock.taken == 0


def test_the_command(
    fake_device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import v4calib.devices

    monkeypatch.setattr(v4calib.devices, "open_device", lambda *a: fake_device())
    assert main(["verify", "--ops", "topk,index_scan"]) == 0
    assert "ok    topk" in capsys.readouterr().out
    monkeypatch.setattr(v4calib.devices, "open_device", lambda *a: fake_device(wrong={"topk": "wrong"}))
    assert main(["verify", "--ops", "topk,index_scan", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert {row["operation"] for row in rows if row["ok"] is False} == {"topk"}
