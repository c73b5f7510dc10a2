"""Clocks, power, temperature, throttling and the host link, as NVML reports them: any of it may be missing.

Every field is a value or the reason why there is none; a virtual GPU that answers NotSupported or "[N/A]"
loses a field and not the run. A sample is `throttled` where heat or a fault lowers clocks: such a time is
that of a sick node. The power cap is apart: large matrix products reach it on a healthy GPU, in a
benchmark as in serving, so it is a flag and no reason to drop a row. Idle and user-set clocks are
neither. Units: MHz, watts, degrees Celsius, bytes; PCIe generation and lanes as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

FIELDS = (
    "sm_clock_mhz",
    "memory_clock_mhz",
    "max_sm_clock_mhz",
    "power_w",
    "power_limit_w",
    "temperature_c",
    "throttle_reasons",
    "memory_total_bytes",
    "memory_used_bytes",
    "driver",
    "pcie_generation",
    "pcie_lanes",
)
# Bits of nvmlClocksThrottleReasons (nvml.h).
REASONS = {
    0x0000000000000001: "gpu_idle",
    0x0000000000000002: "applications_clocks",
    0x0000000000000004: "sw_power_cap",
    0x0000000000000008: "hw_slowdown",
    0x0000000000000010: "sync_boost",
    0x0000000000000020: "sw_thermal_slowdown",
    0x0000000000000040: "hw_thermal_slowdown",
    0x0000000000000080: "hw_power_brake",
    0x0000000000000100: "display_clock",
}
POWER_CAP = "sw_power_cap"
SLOWING = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"})


@dataclass(frozen=True, slots=True)
class Sensors:
    """One reading: values by field (None where missing) and the reasons for what is missing."""

    values: Mapping[str, Any]
    missing: Mapping[str, str]

    @property
    def throttled(self) -> tuple[str, ...]:
        """Active reasons that a healthy GPU does not have."""
        return tuple(r for r in self.values.get("throttle_reasons") or () if r in SLOWING)

    @property
    def power_capped(self) -> bool:
        return POWER_CAP in (self.values.get("throttle_reasons") or ())

    def as_dict(self) -> dict[str, Any]:
        return {"values": dict(self.values), "missing": dict(self.missing)}


def absent(reason: str) -> Sensors:
    """No NVML at all."""
    return Sensors(dict.fromkeys(FIELDS), dict.fromkeys(FIELDS, reason))


class Nvml:
    """NVML of one device, without `uuid` the first. `library` is pynvml, or what answers like it."""

    def __init__(self, library: Any, uuid: str | None = None) -> None:
        self._nvml = library
        self._error: str | None = None
        self._handle: Any = None
        try:
            library.nvmlInit()
            # By identity: NVML counts all GPUs of the node, a process sees those that it was given.
            if uuid is None:
                self._handle = library.nvmlDeviceGetHandleByIndex(0)
            else:
                self._handle = library.nvmlDeviceGetHandleByUUID(uuid)
        except Exception as error:  # pynvml raises one class per return code, and OSError without a driver
            self._error = f"NVML does not start: {_words(error)}"

    def read(self) -> Sensors:
        if self._error is not None:
            return absent(self._error)
        values: dict[str, Any] = {}
        missing: dict[str, str] = {}
        for name, ask in self._questions().items():
            try:
                value = ask()
            except Exception as error:  # see above
                values[name], missing[name] = None, _words(error)
                continue
            if isinstance(value, bytes):
                value = value.decode(errors="replace")
            if isinstance(value, str) and value.strip("[] ").upper() in ("N/A", "NOT SUPPORTED", ""):
                values[name], missing[name] = None, f"answered {value!r}"
            else:
                values[name] = value
        return Sensors(values, missing)

    def _questions(self) -> dict[str, Callable[[], Any]]:
        n, h = self._nvml, self._handle
        return {
            "sm_clock_mhz": lambda: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM),
            "max_sm_clock_mhz": lambda: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM),
            "power_w": lambda: _scaled(n.nvmlDeviceGetPowerUsage(h)),
            "power_limit_w": lambda: _scaled(n.nvmlDeviceGetEnforcedPowerLimit(h)),
            "temperature_c": lambda: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),
            "throttle_reasons": lambda: _reasons(n.nvmlDeviceGetCurrentClocksThrottleReasons(h)),
            "memory_total_bytes": lambda: n.nvmlDeviceGetMemoryInfo(h).total,
            "memory_used_bytes": lambda: n.nvmlDeviceGetMemoryInfo(h).used,
            "driver": n.nvmlSystemGetDriverVersion,
            "pcie_generation": lambda: n.nvmlDeviceGetCurrPcieLinkGeneration(h),
            "pcie_lanes": lambda: n.nvmlDeviceGetCurrPcieLinkWidth(h),
        }


def open_nvml(uuid: str | None) -> Callable[[], Sensors]:
    """A reader of this node's device; without nvidia-ml-py, one that says so."""
    try:
        import pynvml
    except ImportError:
        nothing = absent("nvidia-ml-py is not installed")
        return lambda: nothing
    return Nvml(pynvml, uuid).read


def _scaled(milliwatts: Any) -> Any:
    return milliwatts / 1000 if isinstance(milliwatts, int | float) else milliwatts


def _reasons(mask: Any) -> Any:
    if not isinstance(mask, int):
        return mask
    return tuple(name for bit, name in REASONS.items() if mask & bit)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
