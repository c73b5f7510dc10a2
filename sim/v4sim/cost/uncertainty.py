"""How sure the numbers of a cost are, beyond how well a table repeats its own rows.

A table's residual says how well it interpolates, on the machine it was measured on. A prediction is wrong
by more: another machine of the same kind, experts that are loaded more evenly or less, another host.
Each entry is the standard deviation of a logarithm, with what it was read from; none was taken from
how far predictions are from whole-engine measurements.

`Profile.draw` and `EngineConstants.draw` read this. Leaves out what a deployment's own options leave
open (acceptance) and the noise of a measurement, which a backtest adds.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Spread:
    """The standard deviation of a factor's logarithm, and its source."""

    log_sd: float
    source: str


# One factor for all operations that run on the GPU.
MACHINE = Spread(
    0.045,
    "B200, GB200 and B300 hold the same chip: the families of aiconfigurator's tables differ by -12 to "
    "+8 % between them, most by 2 to 6 %",
)
# One factor for all experts whose load depends on where tokens go.
SKEW = Spread(
    0.2,
    "experts of an EP group are priced at power law 1.2, 1.4 (512 tokens a rank) to 1.8 (8192) times an even "
    "load (aiconfigurator, GB200); how skewed a deployment's traffic is nobody states",
)
# One factor for the index scan of prefill.
SCAN = Spread(
    0.13,
    "the same scan alone takes 13 to 15 % more than inside SGLang's module (aiconfigurator, B200, 262K and "
    "524K of past); FP4 keys are in no table",
)
# One factor for all attention modules.
BUILD = Spread(
    0.08,
    "the same HCA modules in SGLang's and in vLLM's tables differ by a standard deviation of 7 to 11 % "
    "(aiconfigurator, B200 and H200; CSA, whose dummy scores tie, by more): what another build may do",
)
_SKEWED = ("megamoe.", "moe.")
_ATTENTION = ("csa_", "hca_")


def factor(log_sd: float, seed: int, name: str) -> float:
    """A log-normal factor of median 1, the same for the same seed and name.

    An odd seed has the reciprocals of the even one before it, so that a few draws are centred.
    """
    if not log_sd:
        return 1.0
    rng = np.random.default_rng([seed // 2, zlib.crc32(name.encode())])
    sign = -1.0 if seed % 2 else 1.0
    return math.exp(sign * log_sd * float(rng.standard_normal()))


def shared_factor(operation: str, seed: int) -> float:
    """What a draw moves beside an operation's own residual: the machine, the skew of experts, the scan."""
    if operation.startswith("eager_launch."):
        return 1.0  # of the host
    found = factor(MACHINE.log_sd, seed, "machine")
    if operation.startswith(_SKEWED) and not operation.endswith("ep1"):
        found *= factor(SKEW.log_sd, seed, "skew")
    if operation.startswith("index_scan_prefill."):
        found *= factor(SCAN.log_sd, seed, "scan")
    if operation.startswith(_ATTENTION):
        found *= factor(BUILD.log_sd, seed, "build")
    return found
