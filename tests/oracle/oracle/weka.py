"""Recorded agent sessions as scripts: lengths ÷ 64, gaps in steps, prefixes as the block hashes say.

Source: the weka traces beside the checkout (`sessions.tar.xz`). Only the main conversation is taken.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from oracle.generate import BASE
from oracle.script import Script, ScriptCall

SCALE = 64  # a block of the source becomes one token
SESSIONS = 40
_MOST_TURNS = 24


def scripts(archive: Path, engine: str) -> list[Script]:
    """The first sessions in order of name, two at a time on one scheduler."""
    import random

    sessions = []
    with tarfile.open(archive) as tar:
        for member in sorted((m for m in tar.getmembers() if m.name.endswith(".json")), key=lambda m: m.name):
            file = tar.extractfile(member)
            assert file is not None
            sessions.append(json.load(file))
            if len(sessions) == SESSIONS:
                break
    found = []
    for number, session in enumerate(sessions):
        draw = random.Random(f"weka/{number}")
        options = BASE[engine](draw)
        other = sessions[(number + 1) % len(sessions)]
        calls = _calls(session, 0, 0)
        calls += _calls(other, draw.randint(0, 9), len(calls))
        most = max(call.prompt + call.limit for call in calls)
        options["kv_tokens"] = -(-int(most * draw.choice([1.2, 2.0, 4.0])) // 16) * 16 + 64
        found.append(Script(f"weka-{number:02d}", "weka", engine, options, tuple(calls)))
    return found


def _calls(session: dict[str, Any], at: int, base: int) -> list[ScriptCall]:
    calls: list[ScriptCall] = []
    hashes: list[list[int]] = []
    requests = [r for r in session["requests"] if r.get("hash_ids") and r.get("out")][:_MOST_TURNS]
    for turn, request in enumerate(requests):
        prompt = max(2, min(int(request["in"]) // SCALE, 4096))
        output = max(1, int(request["out"]) // SCALE)
        parent, shared = None, 0
        for earlier, ids in enumerate(hashes):
            same = next(
                (i for i, (a, b) in enumerate(zip(ids, request["hash_ids"], strict=False)) if a != b),
                min(len(ids), len(request["hash_ids"])),
            )
            same = min(same, prompt - 1, calls[earlier].prompt)
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
