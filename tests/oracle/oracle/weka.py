"""Recorded agent sessions as scripts: gaps in steps, prefixes as the block hashes say.

Many at lengths ÷ 64, and a few, four sessions at a time, at their own lengths and an engine's own sizes.

Source: the weka traces beside the checkout (`sessions.tar.xz`). Only the main conversation is taken.
"""

from __future__ import annotations

import json
import random
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

from oracle.generate import BASE
from oracle.script import Script, ScriptCall

BLOCK = 64  # tokens of a block hash in the source
SESSIONS = 40
WHOLE = 6


class Size(NamedTuple):
    """What is taken of a session: lengths are divided, then cut."""

    divisor: int
    turns: int
    prompt: int
    output: int


SCALED = Size(BLOCK, 24, 4_096, 1 << 30)
UNSCALED = Size(1, 14, 100_000, 300)
LARGE = {"page_tokens": 256, "max_batched_tokens": 8_192, "max_num_seqs": 64}  # vLLM's own


def scripts(archive: Path, engine: str) -> list[Script]:
    """The first sessions in order of name, two at a time on one scheduler."""
    sessions = _sessions(archive)
    found = []
    for number, session in enumerate(sessions):
        draw = random.Random(f"weka/{number}")
        options = BASE[engine](draw)
        other = sessions[(number + 1) % len(sessions)]
        calls = _calls(session, 0, 0, SCALED)
        calls += _calls(other, draw.randint(0, 9), len(calls), SCALED)
        most = max(call.prompt + call.limit for call in calls)
        options["kv_tokens"] = -(-int(most * draw.choice([1.2, 2.0, 4.0])) // 16) * 16 + 64
        found.append(Script(f"weka-{number:02d}", "weka", engine, options, tuple(calls)))
    return found


def whole(archive: Path, engine: str) -> list[Script]:
    """A few sessions with all their tokens, in a pool that the longest prompt nearly fills: vLLM only."""
    if engine != "vllm":
        return []
    sessions = _sessions(archive)
    found = []
    for number in range(WHOLE):
        calls: list[ScriptCall] = []
        for place in range(4):
            calls += _calls(sessions[2 * number + place], 5 * place, len(calls), UNSCALED)
        most = max(call.prompt + call.limit for call in calls)
        options: dict[str, Any] = {**LARGE, "async_scheduling": number % 2 == 0}
        options["kv_tokens"] = -(-int(most * (1.3, 2.5)[number % 2]) // 256) * 256 + 512
        if number % 3:
            options |= {"draft_tokens": number % 3, "speculation": ("mtp", "dspark")[number % 2]}
        found.append(Script(f"weka-whole-{number}", "weka-whole", engine, options, tuple(calls)))
    return found


def _sessions(archive: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with tarfile.open(archive) as tar:
        for member in sorted((m for m in tar.getmembers() if m.name.endswith(".json")), key=lambda m: m.name):
            file = tar.extractfile(member)
            assert file is not None
            found.append(json.load(file))
            if len(found) == SESSIONS:
                break
    return found


def _calls(session: dict[str, Any], at: int, base: int, size: Size) -> list[ScriptCall]:
    calls: list[ScriptCall] = []
    hashes: list[list[int]] = []
    requests = [r for r in session["requests"] if r.get("hash_ids") and r.get("out")][: size.turns]
    for turn, request in enumerate(requests):
        prompt = max(2, min(int(request["in"]) // size.divisor, size.prompt))
        output = max(1, min(int(request["out"]) // size.divisor, size.output))
        parent, shared = None, 0
        for earlier, ids in enumerate(hashes):
            same = next(
                (i for i, (a, b) in enumerate(zip(ids, request["hash_ids"], strict=False)) if a != b),
                min(len(ids), len(request["hash_ids"])),
            )
            same = min(same * BLOCK // size.divisor, prompt - 1, calls[earlier].prompt)
            if same > shared:
                parent, shared = earlier, same
        gap = float(request["t"]) - float(requests[turn - 1]["t"]) if turn else 0.0
        calls.append(
            ScriptCall(
                prompt,
                output,
                output + 16,
                at=at if turn == 0 else None,
                after=base + turn - 1 if turn else None,
                delay=min(60, int(gap)),
                parent=None if parent is None else base + parent,
                shared=shared,
            )
        )
        hashes.append(request["hash_ids"])
    return calls
