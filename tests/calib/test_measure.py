"""The runner on a device of made-up timings: order, passes, refusals, flags, interruption."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from v4calib.drift import drift
from v4calib.errors import CalibError
from v4calib.journal import Journal, read_journal
from v4calib.measure import schedule
from v4calib.plan import jobs_for
from v4calib.rows import combine, launch_us

Run = Callable[..., Journal]
Make = Callable[..., Any]


def test_two_passes_in_different_orders(tiny_grid: Any) -> None:
    jobs = jobs_for(["topk,index_scan"], ["v4-flash"], tiny_grid)
    order = schedule(jobs, seed=0, passes=2)
    first = [point.key for number, _, point in order if number == 1]
    second = [point.key for number, _, point in order if number == 2]
    assert Counter(first) == Counter(second)
    assert first != second
    assert first != sorted(first)
    assert order == schedule(jobs, seed=0, passes=2)
    assert order != schedule(jobs, seed=1, passes=2)


def test_every_point_gets_a_row_a_pass(fake_device: Make, measure_all: Run, tiny_grid: Any) -> None:
    journal = measure_all(fake_device(), ["topk"])
    points = jobs_for(["topk"], ["v4-flash"], tiny_grid)[0].points
    assert Counter(row.number for row in journal.rows) == {1: len(points), 2: len(points)}
    assert {row.status for row in journal.rows} == {"ok"}
    assert all(m.passes == 2 for m in combine(journal.rows))


def test_a_kernel_that_is_wrong_here_has_no_row_with_a_time(fake_device: Make, measure_all: Run) -> None:
    """triton#11734: dot_scaled took scale byte 0 for zero; compared with its reference, it is never timed."""
    device = fake_device(wrong={"index_scan": "index_scan differs from its reference by 1e6 times the bound"})
    journal = measure_all(device, ["index_scan,topk"])
    scans = [row for row in journal.rows if row.point.operation == "index_scan" and row.status == "wrong"]
    assert scans
    assert all(row.us is None for row in scans)
    assert all("reference" in row.reason for row in scans)
    assert len(scans) == len({row.point.key for row in scans}), "not tried again in the second pass"
    assert not [m for m in combine(journal.rows) if m.point.operation == "index_scan"]
    assert [m for m in combine(journal.rows) if m.point.operation == "topk"], "and the others go on"


def test_what_does_not_compile_is_unsupported_once_a_configuration(
    fake_device: Make, measure_all: Run
) -> None:
    """triton#10918: FP4 emulation compiled for ten minutes."""
    device = fake_device(hangs={"topk": "does not compile within 120 s"})
    journal = measure_all(device, ["topk"])
    assert {row.status for row in journal.rows} == {"unsupported"}
    assert {row.reason for row in journal.rows} == {"does not compile within 120 s"}
    assert len(device.compiled) == 1, "one attempt for all points of the configuration"
    assert device.opened == []


def test_a_case_that_raises_is_a_row_and_not_the_end(fake_device: Make, measure_all: Run) -> None:
    journal = measure_all(fake_device(failing={"topk"}), ["topk,lm_head"])
    failed = [row for row in journal.rows if row.status == "failed"]
    assert failed
    assert all("out of memory" in row.reason for row in failed)
    assert {row.point.operation for row in journal.rows if row.status == "ok"} == {"lm_head"}


def test_a_device_that_is_lost_ends_the_run_and_resume_leaves_the_point_out(
    fake_device: Make, measure_all: Run, tmp_path: Path
) -> None:
    """An illegal access ends a CUDA context: every later point would fail, and be settled as failed."""
    with pytest.raises(CalibError, match=r"left the device unusable.*--resume"):
        measure_all(fake_device(failing={"topk"}, fragile=True), ["topk,lm_head"], folder=tmp_path)
    _, kept = read_journal(tmp_path / "run.rows.jsonl")
    (failed,) = [row for row in kept if row.status == "failed"]
    journal = measure_all(fake_device(), ["topk,lm_head"], folder=tmp_path, resume=True)
    again = [row for row in journal.rows if row.point.key == failed.point.key]
    assert again == [failed]
    assert {row.status for row in journal.rows if row != failed} == {"ok"}


def test_rows_that_break_the_roofline_are_rejected(fake_device: Make, measure_all: Run) -> None:
    slow = measure_all(fake_device(scale={"lm_head": 1e4}), ["lm_head"])
    fast = measure_all(fake_device(scale={"lm_head": 1e-3}), ["lm_head"])
    for journal in (slow, fast):
        assert {row.status for row in journal.rows} == {"rejected"}
        assert combine(journal.rows) == []
    assert "fell back" in slow.rows[0].reason
    assert "cannot have done its work" in fast.rows[0].reason


def test_throttled_samples_are_flagged_and_left_out(fake_device: Make, measure_all: Run) -> None:
    """nvbench#6: clocks and throttle reasons are part of a sample."""
    device = fake_device(throttle=lambda n: ("hw_thermal_slowdown",) if 10 <= n < 20 else ())
    journal = measure_all(device, ["topk"])
    flagged = [row for row in journal.rows if "throttled" in row.flags]
    assert len(flagged) == 6  # reading 10 ends one row, 11-19 are five more, two readings a row
    assert all(row.us is not None and not row.usable for row in flagged)
    assert all("hw_thermal_slowdown" in row.reason for row in flagged)
    assert all(row.sensors["sm_clock_mhz"] == 1980 for row in journal.rows)
    assert all(row.sensors["power_w"] is None for row in journal.rows), "a missing field is null"


def test_the_power_cap_is_flagged_and_kept(fake_device: Make, measure_all: Run) -> None:
    journal = measure_all(fake_device(throttle=lambda n: ("sw_power_cap",)), ["lm_head"])
    assert all(row.usable and "power_cap" in row.flags for row in journal.rows)


def test_drift_between_passes_is_found_and_steady_is_not(fake_device: Make, measure_all: Run) -> None:
    steady = drift(measure_all(fake_device(), ["topk"]).rows)
    assert not steady.found
    assert steady.ratio == pytest.approx(1.0)
    device = fake_device(shape=lambda n: 1.0 + n * 5e-5)
    warming = drift(measure_all(device, ["topk"]).rows)
    assert warming.found
    assert warming.ratio > 1.02
    assert "the device drifted" in warming.text()


def test_launch_cost_is_apart_from_device_time(fake_device: Make, measure_all: Run) -> None:
    """triton#404: zeroing a cache hid launch overhead; here graph and eager are two labelled numbers."""
    journal = measure_all(fake_device(), ["empty_launch"])
    times = {row.variant: row.us for row in journal.rows}
    assert times["graph/hot"] == pytest.approx(2.0)
    assert times["eager/hot"] == pytest.approx(7.0)
    assert [us for _, us in launch_us(journal.rows)] == [pytest.approx(5.0)]
    assert combine(journal.rows)[0].variant == "graph/cold", "what a fit takes"


def test_an_interrupted_run_resumes_with_what_it_has(
    fake_device: Make, measure_all: Run, tmp_path: Path
) -> None:
    device = fake_device()
    device.clock.interrupt_after = 400
    with pytest.raises(KeyboardInterrupt):
        measure_all(device, ["topk"], folder=tmp_path)
    _, kept = read_journal(tmp_path / "run.rows.jsonl")
    assert len(kept) > 5
    again = fake_device()
    journal = measure_all(again, ["topk"], folder=tmp_path, resume=True)
    whole = measure_all(fake_device(), ["topk"])
    assert len(again.opened) == len(whole.rows) - len(kept), "nothing was measured twice"
    assert [m.us for m in combine(journal.rows)] == [m.us for m in combine(whole.rows)]


def test_a_torn_last_line_is_dropped_and_a_broken_one_named(
    fake_device: Make, measure_all: Run, tmp_path: Path
) -> None:
    journal = measure_all(fake_device(), ["lm_head"], folder=tmp_path)
    text = journal.path.read_text()
    journal.path.write_text(text + '{"point":{"operation":"lm_h')
    header, rows = read_journal(journal.path)
    assert (len(rows), header) == (len(journal.rows), journal.header)
    resumed = measure_all(fake_device(), ["lm_head"], folder=tmp_path, resume=True)
    assert len(resumed.rows) == len(journal.rows)
    assert all(json.loads(line) for line in journal.path.read_text().splitlines())
    lines = text.splitlines()
    journal.path.write_text("\n".join([lines[0], "garbage", *lines[2:]]) + "\n")
    with pytest.raises(CalibError, match="line 2 is not JSON"):
        read_journal(journal.path)


def test_rows_of_another_run_are_not_resumed(fake_device: Make, measure_all: Run, tmp_path: Path) -> None:
    measure_all(fake_device(), ["lm_head"], folder=tmp_path)
    with pytest.raises(CalibError, match="cannot be resumed: seed is 0 there and 7 now"):
        measure_all(fake_device(), ["lm_head"], folder=tmp_path, resume=True, seed=7)
    with pytest.raises(CalibError, match="--resume"):
        measure_all(fake_device(), ["lm_head"], folder=tmp_path)
