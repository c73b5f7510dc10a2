"""Session scripts for the cache: who continues whom, at which length, on and around page boundaries.

Pages of 256 tokens as V4 has them, and a pool in which nothing is ever evicted: what is compared is
which hits are legal. Same seed, same scripts.
"""

from __future__ import annotations

import random
from typing import Any

from oracle.script import Script, ScriptCall

PAGE = 256


def scripts(per_kind: int) -> list[Script]:
    return [_script(kind, number, {}) for kind in _CALLS for number in range(per_kind)]


def crowded(count: int) -> list[Script]:
    """The same in a pool so small that calls lose their place, with the options that order a step.

    For the simulator's adapter alone: our own model does not count the blocks of windows that stay.
    """
    found = []
    for number in range(count):
        draw = random.Random(f"crowded/{number}")
        extra = {
            "kv_tokens": draw.choice([450, 700]) * PAGE,
            "max_batched_tokens": draw.choice([256, 512]),
            "max_num_seqs": draw.choice([2, 32]),
            "long_prefill_token_threshold": draw.choice([0, 0, 300]),
            "watermark": draw.choice([0.0, 0.1]),
            "reserve_full_isl": draw.random() < 0.5,
        }
        found.append(_script("together", 1000 + number, extra, crowd=draw.randint(8, 20)))
    return found


def _script(kind: str, number: int, extra: dict[str, Any], crowd: int = 0) -> Script:
    draw = random.Random(f"{kind}/{number}")
    calls = _together(draw, crowd) if crowd else _CALLS[kind](draw)
    name = "crowded" if crowd else kind
    return Script(f"v4-{name}-{number:02d}", name, "vllm", _options(draw) | extra, tuple(calls))


def _options(draw: random.Random) -> dict[str, Any]:
    drafts = draw.choice([0, 0, 1, 3])
    options: dict[str, Any] = {
        "page_tokens": PAGE,
        "window_tokens": 128,
        "kv_tokens": 32768 * PAGE,
        "max_batched_tokens": draw.choice([512, 2048, 8192]),
        "max_num_seqs": 32,
        "async_scheduling": draw.random() < 0.5,
        "draft_tokens": drafts,
        "retention_interval": draw.choice([0, 0, None]),
    }
    if drafts:
        options["speculation"] = draw.choice(["mtp", "mtp", "dspark"])
    return options


def _length(draw: random.Random, least: int = 1) -> int:
    """Anything, or a page boundary and its neighbours."""
    if draw.random() < 0.5:
        return least + draw.randint(0, 9 * PAGE)
    return max(least, draw.randint(1, 8) * PAGE + draw.choice([-2, -1, 0, 1, 2]) + least - 1)


def _output(draw: random.Random) -> int:
    return draw.choice([1, 2, 5, 60, 255, 256, 257, 400])


def _add(calls: list[ScriptCall], draw: random.Random, prompt: int, **links: Any) -> None:
    output = _output(draw)
    links.setdefault("after", len(calls) - 1 if calls else None)
    calls.append(ScriptCall(prompt, output, output + draw.choice([0, 100]), delay=2, **links))


def _turns(draw: random.Random) -> list[ScriptCall]:
    """Each turn is the last one with its answer, whole or cut, and something new."""
    calls: list[ScriptCall] = []
    _add(calls, draw, _length(draw))
    for _ in range(draw.randint(3, 7)):
        last = calls[-1]
        back = draw.choice([last.output, last.output, 0, draw.randint(0, last.output)])
        more = draw.choice([1, 2, 100, 255, 256, 700])
        _add(
            calls,
            draw,
            last.prompt + back + more,
            parent=len(calls) - 1,
            shared=last.prompt,
            shared_output=back,
        )
    return calls


def _forks(draw: random.Random) -> list[ScriptCall]:
    """Many calls that part from one prompt at different lengths, twice each."""
    calls: list[ScriptCall] = []
    _add(calls, draw, _length(draw, 4 * PAGE))
    for _ in range(draw.randint(3, 6)):
        shared = min(calls[0].prompt, _length(draw))
        for _ in range(2):
            _add(calls, draw, shared + draw.choice([1, 50, 300, 600]), parent=0, shared=shared)
    return calls


def _boundaries(draw: random.Random) -> list[ScriptCall]:
    """The same prompt again, and one token more or less, around a page boundary."""
    calls: list[ScriptCall] = []
    base = draw.randint(1, 6) * PAGE + draw.choice([-1, 0, 1])
    _add(calls, draw, base)
    for _ in range(draw.randint(3, 7)):
        prompt = max(2, base + draw.choice([-2, -1, 0, 0, 1, 2, PAGE]))
        _add(calls, draw, prompt, parent=0, shared=min(base, prompt))
    return calls


def _rollbacks(draw: random.Random) -> list[ScriptCall]:
    """Turns, of which one goes back to an earlier one, in the middle of its prompt or answer."""
    calls = _turns(draw)
    for _ in range(draw.randint(1, 3)):
        parent = draw.randrange(len(calls))
        old = calls[parent]
        if draw.random() < 0.5:
            shared, back = draw.randint(1, old.prompt), 0
        else:
            shared, back = old.prompt, draw.randint(1, old.output)
        _add(
            calls,
            draw,
            shared + back + draw.randint(1, 600),
            parent=parent,
            shared=shared,
            shared_output=back,
        )
    return calls


def _together(draw: random.Random, count: int = 0) -> list[ScriptCall]:
    """Calls that come in the same step and share what nobody has computed yet."""
    calls: list[ScriptCall] = []
    root = _length(draw, PAGE)
    output = _output(draw)
    calls.append(ScriptCall(root, output, output, at=0))
    for number in range(1, count or draw.randint(3, 6)):
        shared = min(root, _length(draw))
        output = _output(draw)
        when = draw.choice([0, 0, 1, 3])
        parent = draw.randrange(number) if draw.random() < 0.3 else 0
        shared = min(shared, calls[parent].prompt)
        calls.append(
            ScriptCall(
                shared + draw.choice([1, 100, 300]), output, output, at=when, parent=parent, shared=shared
            )
        )
    return calls


_CALLS = {
    "turns": _turns,
    "forks": _forks,
    "boundaries": _boundaries,
    "rollbacks": _rollbacks,
    "together": _together,
}
