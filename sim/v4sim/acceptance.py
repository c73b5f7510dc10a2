"""Speculative acceptance: published tables to conditional probabilities per position and phase.

A table states the mean acceptance length AL(k) (tokens per verify step, bonus included) for each
number k of draft tokens. AL(k) − AL(k−1) is the probability that the first k drafts are all
accepted, so the chance that draft i survives given that those before it did is the ratio of two
such differences. Noise can make a published AL fall with k; differences are then held at zero and
never above their predecessor. A constant per-token rate would be wrong: V4's MTP saturates at k=3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from v4sim.errors import ConfigError

# Order of the phases everywhere in the simulator; equal to v4traces.PHASES.
PHASES = ("reasoning", "code", "tool_json", "prose", "recovery")
DEFAULT_PHASE = "reasoning"


def conditional_rates(lengths: Sequence[float]) -> tuple[float, ...]:
    """AL(1), AL(2), … → P(draft i accepted | drafts before it accepted), i = 1, 2, …"""
    rates: list[float] = []
    previous_length, survivors = 1.0, 1.0
    for length in lengths:
        both = min(max(length - previous_length, 0.0), survivors)
        rates.append(both / survivors if survivors > 0 else 0.0)
        previous_length = max(previous_length, length)
        survivors = both
    return tuple(rates)


def mean_length(rates: Sequence[float]) -> float:
    """Mean tokens per verify step of these conditional rates, bonus token included."""
    total, survivors = 1.0, 1.0
    for rate in rates:
        survivors *= rate
        total += survivors
    return total


@dataclass(frozen=True, slots=True)
class AcceptanceTable:
    """Conditional acceptance per phase: `rates[phase][i]` for draft position i (0-based)."""

    name: str
    source: str
    rates: Mapping[str, tuple[float, ...]]

    def for_drafts(self, draft_tokens: int) -> tuple[tuple[float, ...], ...]:
        """Rates by phase code, cut to `draft_tokens`; positions beyond the table accept nothing."""
        rows = []
        for phase in PHASES:
            known = self.rates[phase][:draft_tokens]
            rows.append(known + (0.0,) * (draft_tokens - len(known)))
        return tuple(rows)


@cache
def _data() -> dict[str, dict[str, object]]:
    text = files("v4sim").joinpath("data/acceptance.json").read_text(encoding="utf-8")
    data: dict[str, dict[str, object]] = json.loads(text)
    return data


def table_names() -> list[str]:
    return sorted(_data()["tables"])


def acceptance_table(name: str) -> AcceptanceTable:
    """A published table by name, or `constant:P` for the same chance at every position."""
    if name.startswith("constant:"):
        try:
            rate = float(name.removeprefix("constant:"))
        except ValueError:
            rate = -1.0
        if not 0.0 <= rate <= 1.0:
            raise ConfigError(
                f"speculation.acceptance {name!r}: the rate must lie in [0, 1], as in constant:0.7"
            )
        rates = (rate,) * 16
        return AcceptanceTable(name, "given by the user", dict.fromkeys(PHASES, rates))
    tables = _data()["tables"]
    if name not in tables:
        raise ConfigError(
            f"speculation.acceptance {name!r} is not a known table; choose one of "
            f"{', '.join(table_names())} or constant:P"
        )
    entry = tables[name]
    assert isinstance(entry, dict)
    proxy = _data()["phase_proxy"]
    rates_by_phase = {}
    for phase in PHASES:
        mode = str(proxy[phase])
        lengths = entry.get(mode) or entry["thinking_on"]
        rates_by_phase[phase] = conditional_rates(lengths)
    return AcceptanceTable(name, str(entry["source"]), rates_by_phase)
