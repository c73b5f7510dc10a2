"""NVML: every field may be missing, with its reason, and none of them ends a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from v4calib.nvml import FIELDS, SLOWING, Nvml, absent


class NVMLError_NotSupported(Exception):
    """As pynvml's."""


def library(**broken: Any) -> Any:
    answers: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByIndex": lambda i: f"gpu{i}",
        "nvmlDeviceGetClockInfo": lambda h, kind: 1980 if kind == 1 else 3201,
        "nvmlDeviceGetMaxClockInfo": lambda h, kind: 1980,
        "nvmlDeviceGetPowerUsage": lambda h: 412_500,
        "nvmlDeviceGetEnforcedPowerLimit": lambda h: 700_000,
        "nvmlDeviceGetTemperature": lambda h, kind: 54,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda h: 0,
        "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(total=141 << 30, used=1 << 30),
        "nvmlSystemGetDriverVersion": lambda: b"580.159.03",
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda h: 5,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda h: 16,
    }
    return SimpleNamespace(**{**answers, **broken}, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0)


def test_all_fields_of_a_good_node() -> None:
    read = Nvml(library()).read()
    assert set(read.values) == set(FIELDS)
    assert read.missing == {}
    assert read.values["driver"] == "580.159.03"
    assert read.values["power_w"] == 412.5
    assert (read.values["pcie_generation"], read.values["pcie_lanes"]) == (5, 16)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("nvmlDeviceGetPowerUsage", "power_w"),
        ("nvmlDeviceGetCurrPcieLinkGeneration", "pcie_generation"),
        ("nvmlDeviceGetTemperature", "temperature_c"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", "throttle_reasons"),
    ],
)
def test_not_supported_costs_one_field(call: str, field: str) -> None:
    """inclusionAI/humming#48: NotSupported on one query crashed the whole benchmark."""

    def refuse(*args: Any) -> Any:
        raise NVMLError_NotSupported("Not Supported")

    read = Nvml(library(**{call: refuse})).read()
    assert read.values[field] is None
    assert "Not Supported" in read.missing[field]
    assert set(read.missing) == {field}
    assert read.throttled == ()


def test_the_text_na_is_no_value() -> None:
    """pytorch/benchmark#1440: some drivers answer "[N/A]" instead of an error."""
    read = Nvml(library(nvmlDeviceGetPowerUsage=lambda h: "[N/A]")).read()
    assert read.values["power_w"] is None
    assert "N/A" in read.missing["power_w"]


def test_no_driver_at_all_is_a_reason_for_everything() -> None:
    def fail() -> None:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    read = Nvml(library(nvmlInit=fail)).read()
    assert all(value is None for value in read.values.values())
    assert all("libnvidia-ml" in reason for reason in read.missing.values())
    assert absent("x").throttled == ()


def test_only_reasons_that_cost_clocks_throttle() -> None:
    """nvbench#6: idle and application clocks are no fault of the measurement, a thermal slowdown is."""
    for mask, expected in ((0x1, ()), (0x3, ()), (0x4, ()), (0x24, ("sw_thermal_slowdown",))):
        read = Nvml(library(nvmlDeviceGetCurrentClocksThrottleReasons=lambda h, mask=mask: mask)).read()
        assert read.throttled == expected
        assert read.power_capped == bool(mask & 0x4), "a flag of its own: healthy GPUs reach it"
    assert "gpu_idle" not in SLOWING


def test_sensors_are_those_of_the_device_that_is_measured() -> None:
    """CUDA_VISIBLE_DEVICES=3: the first visible GPU is the fourth of the node."""
    asked: list[Any] = []
    by_uuid = library(
        nvmlDeviceGetHandleByUUID=lambda uuid: f"{uuid}!",
        nvmlDeviceGetPowerUsage=lambda h: asked.append(h) or 1000,
    )
    Nvml(by_uuid, "GPU-4").read()
    Nvml(by_uuid).read()
    assert asked == ["GPU-4!", "gpu0"]
    unknown = Nvml(library(), "GPU-4").read()  # this library cannot look one up
    assert all(value is None for value in unknown.values.values())
