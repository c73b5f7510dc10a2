"""The gate: no row above 100 % or under 1 % of its roofline; what three legs say of the index scan."""

from __future__ import annotations

import dataclasses

import pytest

from v4calib.grid import Point
from v4calib.operations import OPERATIONS
from v4calib.plan import described
from v4calib.roofline import Work, bound_us, legs_us, peaks, refuse

SCAN = OPERATIONS["index_scan"]


def scan_point(width: int = 1, dtype: str = "fp8", batch: int = 8, context: int = 1 << 20) -> Point:
    sizes = (("batch", batch), ("context", context), ("width", width), ("mix", "equal"), ("dtype", dtype))
    return Point("index_scan", "v4-flash", sizes)


def test_single_digit_flops_are_rejected() -> None:
    """DeepGEMM#197: a kernel that fell back ran at single-digit TFLOPS on SM100; that is no row."""
    rates = peaks(described("b200"))
    work = Work(read_bytes=1 << 20, write_bytes=1 << 20, matrix_flops=2 * 8192**3)
    at_5_tflops = work.matrix_flops / 5e6
    reason = refuse(at_5_tflops, work, rates, "fp8", "cold")
    assert reason is not None
    assert "0." in reason
    assert "fell back" in reason
    assert refuse(work.matrix_flops / 2.7e9, work, rates, "fp8", "cold") is None


def test_faster_than_the_data_sheet_is_rejected() -> None:
    rates = peaks(described("h200"))
    work = SCAN.work(scan_point())
    assert rates is not None
    leg, bound = bound_us(work, rates, "fp8", "cold")
    assert leg == "hbm"
    reason = refuse(0.9 * bound, work, rates, "fp8", "cold")
    assert reason is not None
    assert "hbm roofline" in reason
    assert refuse(1.05 * bound, work, rates, "fp8", "cold") is None
    assert refuse(0.9 * bound, work, rates, "fp8", "hot") is None, "hot rows may beat HBM"


def test_a_tiny_launch_is_not_a_broken_one() -> None:
    """4 us for a few kilobytes are a launch: far below 1 % of the bandwidth alone."""
    rates = peaks(described("b200"))
    assert refuse(4.0, Work(read_bytes=4096), rates, "bf16", "cold") is None
    assert refuse(4000.0, Work(read_bytes=4096), rates, "bf16", "cold") is not None


def test_the_head_sum_keeps_an_fp4_scan_near_half_of_fp4_peak_at_best() -> None:
    rates = peaks(described("b200"))
    assert rates is not None
    legs = legs_us(SCAN.work(scan_point(8, "fp4")), rates, "fp4")
    assert legs["fp32"] > 1.8 * legs["matrix"], "at the highest boost clock; below it is less than half"


def test_decode_leaves_hbm_at_a_verify_width_of_a_few() -> None:
    rates = peaks(described("b200"))
    assert rates is not None
    leaves = {}
    for dtype in ("fp8", "fp4"):
        legs = [bound_us(SCAN.work(scan_point(w, dtype)), rates, dtype, "cold")[0] for w in range(1, 9)]
        assert legs[0] == "hbm"
        leaves[dtype] = next(w for w, leg in enumerate(legs, 1) if leg != "hbm")
    assert leaves["fp4"] <= 4
    assert leaves["fp4"] <= leaves["fp8"]


def test_a_cpu_has_no_roofline() -> None:
    facts = dataclasses.replace(described("b200"), kind="cpu")
    assert peaks(facts) is None
    assert refuse(1e9, Work(read_bytes=1), None, "bf16", "cold") is None


@pytest.mark.parametrize("name", [n for n, op in OPERATIONS.items() if n not in ("experts", "host_link")])
def test_work_grows_with_the_point(name: str) -> None:
    from v4calib.grid import grid

    operation = OPERATIONS[name]
    points = operation.points("v4-flash", grid("full")) or operation.points("v4.1-flash", grid("full"))
    small, large = (operation.work(end(points, key=operation.footprint_bytes)) for end in (min, max))
    assert large.hbm_bytes + large.nvlink_bytes >= small.hbm_bytes + small.nvlink_bytes
