"""Recorded decisions against ours: step by step, with the accepted deviations and their bounds."""

from __future__ import annotations

from typing import NamedTuple

from oracle.log import Entry
from oracle.script import Script


class Reason(NamedTuple):
    """An accepted deviation, and an upper bound on what it changes."""

    why: str
    bound: str


REASONS = {
    "held-copies": Reason(
        "Of blocks that several calls computed alike vLLM takes the first, block by block; ours takes a "
        "running call's own copies where they are on the way to the rest of the hit.",
        "blocks that lie there twice: as many as prompts computed side by side, and with dropped blocks one "
        "per hit; once the pool is full, which of them is evicted, and so hits of later calls",
    ),
    "other": Reason("Not explained.", "none"),
}


def equal_steps(ours: list[Entry], theirs: list[Entry]) -> int:
    """Steps until the first difference; all of theirs if there is none."""
    for index, (mine, want) in enumerate(zip(ours, theirs, strict=False)):
        if mine != want:
            return index
    return min(len(ours), len(theirs))


def classify(script: Script, ours: list[Entry], theirs: list[Entry]) -> str:
    """The reason that fits the first difference; a proposal for the table, to be read by a person."""
    at = equal_steps(ours, theirs)
    if at >= min(len(ours), len(theirs)):
        return "other"
    mine, want = ours[at], theirs[at]
    hits = dict(map(tuple, mine[3]))
    if any(call in hits and hits[call] != hit for call, hit in want[3]):
        return "other" if script.engine == "sglang" else "held-copies"
    return "other"
