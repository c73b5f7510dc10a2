"""Fits on a device whose law is known: found again, inside what was measured, judged by what was held out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4calib.agreement import agreement, difference
from v4calib.cli import main
from v4calib.errors import CalibError
from v4calib.fit import completed, fit
from v4calib.fits.legs import LegRow, two_legs, two_terms
from v4calib.fits.modules import mean_fill
from v4calib.journal import Journal
from v4calib.merging import merge
from v4calib.residual import Goals, held_out_residuals
from v4calib.rows import combine
from v4sim.config import load as load_deployment
from v4sim.config import resolve
from v4sim.cost import compile_cost, load_profile
from v4sim.cost.load import RankLoad
from v4sim.cost.profile import dump_profile, parse_profile
from v4sim.model import spec

WORLD = {
    "floor": 4.0,
    "key": 3.4e-5,
    "pair": 1.3e-5,
    "topk_pair": 1.2e-6,
    "hca_pair": 2.5e-6,
    "hca_key": 1.2e-6,
}


@pytest.fixture(scope="module")
def journal(fake_device: Callable[..., Any], measure_all: Callable[..., Journal]) -> Journal:
    return measure_all(fake_device())


def test_the_scan_legs_are_found_again(journal: Journal) -> None:
    profile = fit(journal.header, journal.rows).profile
    scan = profile.operation("index_scan.v4-flash.fp8")
    assert scan.term("hbm") == pytest.approx(WORLD["key"], rel=0.02)
    assert scan.term("matrix") == pytest.approx(WORLD["pair"], rel=0.02)
    assert scan.term("head_sum") <= scan.term("matrix")
    assert profile.operation("index_scan_floor").at(tokens=8) == pytest.approx(WORLD["floor"])
    assert "±" in scan.note
    assert (scan.residual.rows, scan.residual.p95 < 0.02) == (scan.residual.rows, True)
    assert scan.residual.rows > 3, "judged by mixed batches that the fit never saw"


def test_topk_and_hca_are_found_again(journal: Journal) -> None:
    profile = fit(journal.header, journal.rows).profile
    assert profile.operation("topk_rate.v4-flash").term("per_pair") == pytest.approx(
        WORLD["topk_pair"], rel=0.05
    )
    saturated = profile.operation("hca_saturated.v4-flash")
    assert saturated.term("compute") == pytest.approx(WORLD["hca_pair"], rel=0.1)
    assert profile.operation("hca_context.v4-flash").at(ctx_max=1 << 20) == pytest.approx(
        2e-5 * (1 << 20), rel=0.2
    )


def test_ways_over_the_link_are_found_again(journal: Journal) -> None:
    """By copy engine and by SM, to and fro; beside compute everything takes twice as long here."""
    profile = fit(journal.header, journal.rows).profile
    for name, rate in (("h2d_copy", 55e3), ("h2d_layers", 55e3), ("d2h_pages", 55e3), ("h2d_gather", 35e3)):
        for suffix, times in (("", 1), ("_beside_compute", 2)):
            operation = profile.operation(name + suffix)
            assert operation.term("per_byte") == pytest.approx(times / rate, rel=1e-3)
            assert operation.term("latency") == pytest.approx(8.0, rel=0.01)
            assert (operation.residual.rows > 0) == (suffix == ""), "beside compute nothing is held out"


def test_modules_are_sums_of_all_their_parts(journal: Journal) -> None:
    """A part that was not measured leaves the module as published: a sum without it would be too cheap."""
    made = fit(journal.header, journal.rows)
    assert "csa_decode.sglang.v4-flash.tp1" in made.profile.operations
    for part in ("norm_rope", "translate", "compressor"):
        rows = [row for row in journal.rows if row.point.operation != part]
        without = fit(journal.header, rows)
        assert "csa_decode.sglang.v4-flash.tp1" not in without.profile.operations
        assert part in without.skipped["csa_decode.sglang.v4-flash.tp1"]
        whole = completed(without, load_profile("h200"))
        module = whole.operation("csa_decode.sglang.v4-flash.tp1")
        assert whole.provenance_of(module).kind == "published"


@pytest.fixture(scope="module")
def newer(fake_device: Callable[..., Any], measure_all: Callable[..., Journal]) -> Journal:
    """V4.1-Flash on a made-up B200."""
    device = fake_device()
    device.facts = replace(device.facts, name="NVIDIA B200", gpu="b200", arch=100, sms=148)
    return measure_all(device, model="v4.1-flash")


def test_a_module_is_the_mean_over_its_layers(newer: Journal) -> None:
    """Of 38 CSA2 layers four make entries and eight select: the mean lies near the thirty that reuse."""
    profile = fit(newer.header, newer.rows).profile
    rows = {
        m.point.word("layer"): m.us
        for m in combine(newer.rows)
        if m.point.operation == "projections" and m.point["tokens"] == 8192
    }
    assert set(rows) == {"bare", "csa-c2", "csa-c1", "reindex"}
    window = profile.operation("hca_decode.sglang.v4.1-flash.tp1")
    module = profile.operation("csa_decode.sglang.v4.1-flash.tp1")
    above = module.at(tokens=8192, fill=0.0) - window.at(tokens=8192)
    assert 0 < above < 0.5 * (rows["csa-c2"] - rows["bare"])
    prefill = profile.operation("hca_prefill.vllm.v4.1-flash.tp1")
    assert prefill.at(new_tokens=512, past_tokens=0) == prefill.at(new_tokens=512, past_tokens=1_000_000)


def test_tables_of_v41_are_in_entries(newer: Journal) -> None:
    """A million tokens are a million entries at ratio 1, four times as many as the tables' ratio gives."""
    profile = fit(newer.header, newer.rows).profile
    scan = profile.operation("index_scan.v4.1-flash.fp4")
    assert scan.term("hbm") == pytest.approx(WORLD["key"], rel=0.02)
    assert scan.axes[0].points[-1] == 32 << 20
    assert scan.residual.p95 < 0.02, "rows of candidate pools too"
    topk = profile.operation("topk_decode.v4.1-flash")
    assert topk.axes[0].points[-1] == 4 << 20
    assert topk.at(ctx_max=4 << 20) == pytest.approx(3.0 + 1e-5 * (1 << 20), rel=1e-3)
    assert profile.operation("topk_rate.v4.1-flash").term("per_pair") == pytest.approx(
        WORLD["topk_pair"] / 4, rel=0.2
    )


def test_the_completed_profile_of_v41_runs_a_deployment(newer: Journal) -> None:
    profile = completed(fit(newer.header, newer.rows), load_profile("b200"))
    deployed = resolve(load_deployment("8xb200-v4-1-flash-dp8-ep8-sglang", []))
    cost = compile_cost(profile, deployed, spec("v4.1-flash"))
    parts = cost.step([RankLoad(4, 400_000, 100_000)] * deployed.parallel.attention_dp, 1, "decode")
    assert sum(parts) > 0
    kinds = {row["op"]: row["kind"] for row in cost.provenance()}
    assert kinds["csa_decode.sglang.v4.1-flash.tp1"] == "measured"
    assert kinds["index_scan.v4.1-flash.fp4"] == "measured"


def test_the_domain_is_what_was_measured(journal: Journal) -> None:
    profile = fit(journal.header, journal.rows).profile
    measured = [row.point for row in journal.rows if row.point.operation == "index_scan" and row.usable]
    largest = max(
        sum(c // 4 for c in [p["context"]] * p["batch"]) for p in measured if p.word("mix") == "equal"
    )
    axes = {a.name: a.points for a in profile.operation("index_scan.v4-flash.fp8").axes}
    assert axes["entries"] == (1, largest)
    prefill = profile.operation("index_scan_prefill.v4-flash")
    assert prefill.axes[0].points == (1, 512, 8192)
    assert prefill.axes[1].points[-1] == 1_000_000


def test_held_out_rows_do_not_move_the_fit(journal: Journal) -> None:
    """Held-out rows three times as slow change residuals and not one number of an operation."""
    spoiled = [
        replace(row, us=3 * row.us) if row.point.held_out and row.us is not None else row
        for row in journal.rows
    ]
    true, other = fit(journal.header, journal.rows).profile, fit(journal.header, spoiled).profile
    assert set(true.operations) == set(other.operations)
    for name, operation in true.operations.items():
        assert (other.operations[name].values, other.operations[name].terms) == (
            operation.values,
            operation.terms,
        )
    scan = "index_scan.v4-flash.fp8"
    assert other.operation(scan).residual.median > 10 * max(true.operation(scan).residual.median, 0.01)


def test_a_completed_profile_is_judged_like_its_fit(journal: Journal) -> None:
    """Prefill tables that were put on the union of two grids are still the fit's."""
    fitted = fit(journal.header, journal.rows)
    whole = completed(fitted, load_profile("h200"))
    alone, among = (held_out_residuals(p, journal.header, journal.rows) for p in (fitted.profile, whole))
    assert among.families == alone.families
    assert "index_scan_prefill" in {family.family for family in among.families}
    assert "mhc.sglang.v4-pro" in among.own


def test_check_judges_by_held_out_shapes(journal: Journal) -> None:
    profile = fit(journal.header, journal.rows).profile
    report = held_out_residuals(profile, journal.header, journal.rows)
    assert "index_scan" in {family.family for family in report.families}
    assert report.total.median < 0.05
    strict = held_out_residuals(profile, journal.header, journal.rows, Goals(0.0, 0.0))
    assert not strict.good
    assert "above the goal of 0% median" in strict.text()


def test_provenance_says_how_it_was_measured(journal: Journal) -> None:
    profile = fit(journal.header, journal.rows).profile
    (origin,) = profile.provenances.values()
    assert origin.kind == "measured"
    assert origin.gpu == "NVIDIA H200"
    assert origin.timing == "graph/cold"
    assert origin.clocks == "1980 MHz SM"
    assert origin.commit == "abc1234"
    assert origin.libraries["triton"] == "3.6.0"
    assert "2 passes" in origin.source
    again = parse_profile(dump_profile(profile), "again")
    assert dump_profile(again) == dump_profile(profile)


def test_the_completed_profile_runs_a_deployment(journal: Journal) -> None:
    fitted = fit(journal.header, journal.rows)
    profile = completed(fitted, load_profile("h200"))
    for sets in (
        ["hardware.gpu=h200", "hardware.num_gpus=8", "parallel.attention_dp=8", "parallel.ep=8"],
        ["hardware.gpu=h200", "hardware.num_gpus=8", "parallel.attention_tp=8", "parallel.attention_dp=1"],
    ):
        deployed = resolve(load_deployment("4xb200-v4-flash-dpa4-ep4-sglang", sets))
        cost = compile_cost(profile, deployed, spec("v4-flash"))
        ranks = deployed.parallel.attention_dp
        parts = cost.step([RankLoad(4, 400_000, 100_000)] * ranks, 1, "decode")
        prefill = cost.step([RankLoad(0, 0, 0, ((4096, 50_000),))] * ranks, 1, "prefill")
        assert sum(parts) > 0
        assert sum(prefill) > sum(parts)
        kinds = {row["op"]: row["kind"] for row in cost.provenance()}
        assert kinds["index_scan.v4-flash.fp8"] == "measured"


def test_merge_overrides_and_keeps_every_provenance(journal: Journal) -> None:
    base, measured = load_profile("h200"), fit(journal.header, journal.rows).profile
    merged = merge(base, measured, without=["csa_decode", "hca_decode"])
    assert merged.provenance_of(merged.operation("index_scan.v4-flash.fp8")).kind == "measured"
    assert merged.provenance_of(merged.operation("csa_decode.sglang.v4-flash.tp1")).kind == "published"
    assert merged.provenance_of(merged.operation("index_scan_prefill.v4-pro")).kind == "published"
    with pytest.raises(CalibError, match="--except csa_deocde"):
        merge(base, measured, without=["csa_deocde"])


def test_merged_prefill_tables_share_a_grid_and_lose_nothing(journal: Journal) -> None:
    base, measured = load_profile("h200"), fit(journal.header, journal.rows).profile
    merged = merge(base, measured)
    names = [n for n in merged.operations if "prefill" in n and ".v4-flash" in n and "share" not in n]
    assert len({tuple(a.points for a in merged.operations[n].axes) for n in names}) == 1
    for profile, name in (
        (base, "csa_prefill.sglang.v4-flash.tp8"),
        (measured, "index_scan_prefill.v4-flash"),
    ):
        for new, past in ((64, 3000), (700, 20_000), (8192, 1_000_000)):
            at = {"new_tokens": new, "past_tokens": past}
            assert merged.operations[name].at(**at) == pytest.approx(
                profile.operations[name].at(**at), rel=1e-9
            )


def test_diff_and_agreement(journal: Journal) -> None:
    base, measured = load_profile("h200"), fit(journal.header, journal.rows).profile
    rows = {row.operation: row for row in agreement(measured, base)}
    assert rows["index_scan_prefill.v4-flash"].points == 12
    assert rows["index_scan_prefill.v4-flash"].first == "measured"
    found = difference(merge(base, measured), base)
    assert found.only_second == ()
    assert found.same > 100
    assert difference(base, base).changed == ()


@given(
    first=st.floats(1e-3, 10),
    second=st.floats(1e-3, 10),
    seed=st.integers(0, 1000),
)
def test_two_legs_of_any_slopes(first: float, second: float, seed: int) -> None:
    """Exact data give the exact slopes back, whichever leg bounds which row."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(30):
        x = float(rng.uniform(100, 1000))
        y = x * first / second * float(rng.choice([0.25, 0.5, 2.0, 4.0]))
        rows.append(LegRow(2.0 + max(first * x, second * y), 2.0, x, y))
    found = two_legs(rows, (0.0, 0.0))
    assert found.first.slope == pytest.approx(first, rel=1e-6)
    assert found.second.slope == pytest.approx(second, rel=1e-6)
    assert found.error(rows) < 1e-6


def test_a_leg_that_no_row_shows_is_said_to_be_a_roofline() -> None:
    rows = [LegRow(1.0 + 2.0 * x, 1.0, x, 0.01 * x) for x in (10.0, 100.0, 1000.0)]
    found = two_legs(rows, (0.5, 0.25))
    assert found.first.slope == pytest.approx(2.0)
    assert (found.second.slope, found.second.rows) == (0.25, 0)
    assert "roofline" in found.second.words


@given(a=st.floats(0, 10), b=st.floats(0.01, 10))
def test_two_terms_are_never_negative(a: float, b: float) -> None:
    rows = [LegRow(a * x + b * y, 0.0, x, y) for x, y in ((1.0, 2.0), (3.0, 1.0), (5.0, 9.0), (2.0, 2.0))]
    first, second = two_terms(rows)
    assert first.slope == pytest.approx(a, abs=1e-6)
    assert second.slope == pytest.approx(b, rel=1e-6)
    uneven = [LegRow(5.0 - 0.1 * x, 0.0, 1.0, x) for x in (1.0, 2.0, 3.0)]
    assert two_terms(uneven)[1].slope == 0.0


def test_a_chunk_fills_its_selection_step_by_step() -> None:
    assert mean_fill(1, 3, 512) == pytest.approx(1 / 512)
    assert mean_fill(8, 1_000_000, 512) == 1.0
    assert mean_fill(4096, 0, 512) < mean_fill(4096, 1024, 512) < 1.0


def test_the_commands_on_rows_of_a_made_up_device(
    journal: Journal, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """fit → check → merge → diff → show, as a user goes."""
    made, merged, rows = (tmp_path / name for name in ("run.json", "merged.json", "run.rows.jsonl"))
    rows.write_bytes(journal.path.read_bytes())
    assert main(["fit", str(rows)]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == str(made)
    assert "measured / h200" in shown.out, "the agreement table"
    assert "drift: no drift" in shown.err
    assert "an eager launch costs 5.0 us more" in shown.err
    assert main(["check", str(made), "--json"]) in (0, 1)
    (report,) = json.loads(capsys.readouterr().out)
    assert report["total"]["rows"] > 10
    assert main(["check", str(made), "--median", "0", "--p95", "0"]) == 1
    assert main(["merge", "h200", str(made), "-o", str(merged)]) == 0
    capsys.readouterr()
    assert main(["diff", str(merged), "h200", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["only_second"] == []
    assert main(["diff", "h200", "h200"]) == 0
    assert main(["fit", str(rows)]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["merge", "b200", str(made), "-o", str(tmp_path / "no.json")]) == 2
    assert "cannot be merged" in capsys.readouterr().err
    assert main(["merge", "b200", "h200", "-o", str(tmp_path / "no.json")]) == 2
    assert "nothing that was measured" in capsys.readouterr().err
