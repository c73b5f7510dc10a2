"""Acceptance of drafts by phase, from how many verify steps the calls took.

A call that decodes n_p tokens in phase p takes sum over p of n_p / AL_p steps, AL_p the tokens a step yields.
The AL_p of all phases are the non-negative least squares over the calls, each weighted by one over its
tokens, so that long calls do not decide alone. The first token of a call comes from its prefill. Phases are
those of the trace; a trace without them has one.

Left out: positions within a step, which only the engine's own counters tell apart; and phases that no call
has tokens of. Units: tokens per verify step, bonus token included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v4sim.acceptance import DEFAULT_PHASE, PHASES
from v4sim.observe.join import Joined
from v4traces import TraceTable

_MIN_TOKENS = 200  # of a phase, below which its length is noise


@dataclass(frozen=True, slots=True)
class AcceptanceSeen:
    """Tokens per verify step: over all calls, and by phase with the tokens behind each."""

    length: float
    calls: int
    by_phase: dict[str, tuple[float, int]]


def acceptance_seen(joined: Joined) -> AcceptanceSeen | None:
    """None where no call reports verify steps."""
    rows = [
        (row, call)
        for row, call in enumerate(joined.seen)
        if call.verify_steps and call.output_tokens > 1 and call.verify_steps < call.output_tokens
    ]
    if not rows:
        return None
    tokens = np.array([_phase_tokens(joined.table, row) for row, _ in rows], dtype=np.float64)
    steps = np.array([call.verify_steps for _, call in rows], dtype=np.float64)
    totals = tokens.sum(axis=0)
    length = float(tokens.sum() / steps.sum())
    used = [p for p in range(len(PHASES)) if totals[p] >= _MIN_TOKENS]
    inverse = _non_negative(tokens[:, used], steps) if used else np.zeros(0)
    by_phase = {
        PHASES[p]: (max(1.0 / value, 1.0), int(totals[p]))
        for p, value in zip(used, inverse.tolist(), strict=True)
        if value > 0
    }
    return AcceptanceSeen(max(length, 1.0), len(rows), by_phase)


def _phase_tokens(table: TraceTable, row: int) -> list[int]:
    """Decoded tokens of a call by phase: spans are cut or stretched to its output, less the first token."""
    counts = [0] * len(PHASES)
    left = int(table.output_tokens[row])
    phase = PHASES.index(DEFAULT_PHASE)
    skip = 1
    for i in range(int(table.phase_offsets[row]), int(table.phase_offsets[row + 1])):
        phase = int(table.phase_kind[i])
        size = min(int(table.phase_tokens[i]), left)
        left -= size
        first = min(skip, size)
        skip -= first
        counts[phase] += size - first
    counts[phase] += left - min(skip, left)
    return counts


def _non_negative(tokens: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """x >= 0 with tokens @ x close to steps; columns that would be negative are taken out one by one."""
    weight = 1.0 / np.sqrt(tokens.sum(axis=1))
    scaled, target = tokens * weight[:, None], steps * weight
    active = list(range(tokens.shape[1]))
    out = np.zeros(tokens.shape[1])
    while active:
        found = np.linalg.lstsq(scaled[:, active], target, rcond=None)[0]
        if (found > 0).all():
            out[active] = found
            break
        active.pop(int(np.argmin(found)))
    return out
