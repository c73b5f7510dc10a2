"""Recorded decisions against ours: step by step, with the accepted deviations and their bounds."""

from __future__ import annotations

from typing import NamedTuple

from oracle.log import Entry
from oracle.script import Script


class Reason(NamedTuple):
    """An accepted deviation. `room_only`: every decision agrees, only the free room is counted otherwise."""

    why: str
    bound: str
    room_only: bool = False


REASONS = {
    "own-copy": Reason(
        "vLLM keeps a second copy of a block that a call computed although it was cached already (the last "
        "block of a prompt that ends on a page, and with drafts the last matched block); ours shares it.",
        "one page per running call (two with drafts), in the room only",
        room_only=True,
    ),
    "optimistic-positions": Reason(
        "With async scheduling vLLM allocates as if every draft in flight had been accepted.",
        "two pages per running call, in the room only",
        room_only=True,
    ),
    "padded-first-step": Reason(
        "vLLM pads a newcomer that has one token left to compute to the verify width.",
        "draft_tokens tokens in one step of that call",
    ),
    "token-in-flight": Reason(
        "SGLang with overlap drops the token that is being computed while its call is retracted.",
        "one token of recompute per retraction, and what follows from it",
    ),
    "eviction-order": Reason(
        "Of several old prefixes another one, or more of one, was evicted: nodes are cut elsewhere.",
        "hits of later calls in a pool that is full",
    ),
    "other": Reason("Not explained.", "none"),
}
PAGES_PER_ROW = 3


def equal_steps(ours: list[Entry], theirs: list[Entry], *, room: bool = True) -> int:
    """Steps until the first difference; all of theirs if there is none."""
    for index, (mine, want) in enumerate(zip(ours, theirs, strict=False)):
        if mine != want and (room or mine[:2] + mine[3:] != want[:2] + want[3:]):
            return index
    return min(len(ours), len(theirs))


def room_within(script: Script, ours: list[Entry], theirs: list[Entry]) -> bool:
    """The free room differs by a few pages per row at most."""
    page = script.options["page_tokens"]
    return all(
        abs(mine[2] - want[2]) <= PAGES_PER_ROW * page * max(1, len(want[1]))
        for mine, want in zip(ours, theirs, strict=True)
    )


def classify(script: Script, ours: list[Entry], theirs: list[Entry]) -> str:
    """The reason that fits the first difference; a proposal for the table, to be read by a person."""
    drafts, options = script.options.get("draft_tokens", 0), script.options
    if equal_steps(ours, theirs, room=False) == len(ours) == len(theirs):
        return "optimistic-positions" if drafts and options.get("async_scheduling") else "own-copy"
    at = equal_steps(ours, theirs, room=not drafts)
    if at >= min(len(ours), len(theirs)):
        return "other"
    mine, want = ours[at], theirs[at]
    if drafts and any(row[1] == 1 and [row[0], 1 + drafts] in want[1] for row in mine[1]):
        return "padded-first-step"
    retracted = any(number >= 0 for entry in theirs[: at + 1] for number in entry[4])
    if retracted and options.get("overlap"):
        return "token-in-flight"
    hits = dict(map(tuple, mine[3]))
    if any(call in hits and hits[call] != hit for call, hit in want[3]):
        return "eviction-order"
    return "other"
