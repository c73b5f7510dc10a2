"""Lengths of prompts and outputs, as a source words them: fixed, drawn by a client, or by marginals alone.

SGLang's bench_serving is known to the seed, so its lengths are its own; other uniform lengths come from
streams keyed by (seed, request). Units: tokens.
"""

from __future__ import annotations

import math
import re
from statistics import NormalDist

import numpy as np

from v4sim import streams
from v4sim.backtest.schema import WorkloadRecord
from v4sim.errors import ConfigError

PROMPTS, OUTPUTS = 1, 2  # streams of this module, under streams.WORKLOAD
STANDARD = NormalDist()
_UNIFORM = re.compile(r"uniform\[\s*(\d+)\s*,\s*(\d+)\s*\]")
_FIXED = re.compile(r"(?:fixed)?\[?\s*(\d+)\s*\]?|fixed")
_CLIENT, _CLIENT_SEED = "bench_serving", 42


def client_lengths(work: WorkloadRecord, count: int) -> tuple[list[int], list[int]] | None:
    """Prompts and outputs as SGLang's bench_serving draws them: all prompts, then all outputs, one seed.

    Its generator is numpy's, seeded 42 (sglang 0.5.15 benchmark/serving.py and datasets/random.py), so every
    run of a cell has the same lengths.
    """
    lengths = work.length_model
    if lengths is None or _CLIENT not in work.notes:
        return None
    ranges = [_UNIFORM.fullmatch((text or "").replace(" ", "")) for text in (lengths.isl, lengths.osl)]
    if ranges[0] is None or ranges[1] is None:
        return None
    bounds = [(max(int(found[1]), 1), int(found[2])) for found in ranges if found is not None]
    if any(low > high for low, high in bounds):
        return None
    client = np.random.RandomState(_CLIENT_SEED)
    prompts, outputs = (client.randint(low, high + 1, size=count).tolist() for low, high in bounds)
    return prompts, outputs


def are_drawn(work: WorkloadRecord) -> bool:
    """Whether another seed gives other lengths."""
    lengths = work.length_model
    if lengths is None or client_lengths(work, 1) is not None:
        return False
    return any("uniform" in (text or "") for text in (lengths.isl, lengths.osl))


def lengths_of(
    text: str | None, fixed: int | None, count: int, seed: int, purpose: int, name: str, notes: list[str]
) -> list[int]:
    if text is not None:
        drawn = _UNIFORM.fullmatch(text.replace(" ", ""))
        if drawn is not None:
            low, high = max(int(drawn[1]), 1), int(drawn[2])
            if low > high:
                raise ConfigError(f"length_model.{name} {text!r}: the first bound is above the second.")
            luck = streams.uniforms(streams.mix(seed, streams.WORKLOAD, purpose), count)
            return [low + int(u * (high - low + 1)) for u in luck.tolist()]
        match = _FIXED.fullmatch(text)
        if match is None:
            raise ConfigError(f"length_model.{name} {text!r}: known are uniform[a,b] and fixed[n].")
        fixed = int(match[1]) if match[1] else fixed
    if fixed is None:
        if name == "isl":
            raise ConfigError("workload.isl is null, and no metric gives the context.")
        notes.append("one output token")
        fixed = 1
    return [fixed] * count


def lognormal(median: float, mean: float | None, p90: float | None) -> tuple[float, float]:
    """(sigma, cap) of a log-normal with this median; the cap brings the mean down to the stated one."""
    if p90 is not None and p90 > median:
        sigma = math.log(p90 / median) / STANDARD.inv_cdf(0.9)
    elif mean is not None and mean > median:
        sigma = math.sqrt(2 * math.log(mean / median))
    else:
        return 0.0, median
    free = median * math.exp(sigma * sigma / 2)
    if mean is None or mean >= free:
        return sigma, free * 1e3
    low, high = median, free * 1e3
    for _ in range(80):
        cap = (low + high) / 2
        z = math.log(cap / median) / sigma
        reached = free * STANDARD.cdf(z - sigma) + cap * (1 - STANDARD.cdf(z))
        low, high = (cap, high) if reached < mean else (low, cap)
    return sigma, high
