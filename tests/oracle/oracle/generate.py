"""Scripts from a seed: each kind puts one thing under strain. Same seed, same scripts.

Lengths are small, with pages of 16 tokens, so that page boundaries, full pools and long queues come
often; nothing in the rules depends on the scale.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from oracle.script import Script, ScriptCall

PAGE = 16


def scripts(engine: str, per_kind: int) -> list[Script]:
    """`per_kind` scripts of every kind for this engine."""
    found = []
    for kind, make in KINDS.items():
        if kind == "dropped-blocks" and engine == "sglang":
            continue
        if kind in ("windows", "ranks") and engine == "vllm":
            continue  # its groups share one pool (`sessions`), its ranks agree on nothing but the pace
        for number in range(MANY.get(kind, per_kind)):
            draw = random.Random(f"{kind}/{number}")
            options = BASE[engine](draw)
            calls, extra = make(draw, engine)
            options |= {key: value for key, value in extra.items() if value is not None}
            if any(call.priority for call in calls) and engine == "sglang":
                options["priority"] = True
            found.append(Script(f"{kind}-{number:02d}", kind, engine, options, tuple(calls)))
    return found


def _vllm(draw: random.Random) -> dict[str, Any]:
    return {
        "page_tokens": PAGE,
        "kv_tokens": 64 * 1024,
        "max_batched_tokens": draw.choice([128, 512]),
        "max_num_seqs": draw.choice([4, 32]),
        "async_scheduling": draw.random() < 0.5,
    }


def _sglang(draw: random.Random) -> dict[str, Any]:
    return {
        "page_tokens": PAGE,
        "window_tokens": PAGE // 2,  # V4: 128 of 256
        "kv_tokens": 64 * 1024,
        "swa_tokens": 64 * 1024,
        "slots": draw.choice([4, 32]),
        "chunk_tokens": draw.choice([128, 512]),
        "max_prefill_tokens": 1024,
        "clip_max_new_tokens": 256,
        "conservativeness": draw.choice([0.3, 1.0]),
        "overlap": draw.random() < 0.5,
    }


BASE = {"vllm": _vllm, "sglang": _sglang}


def _call(draw: random.Random, prompt: int, output: int, **rest: Any) -> ScriptCall:
    limit = draw.choice([output, output + 1, output + 40, 256 + output])
    return ScriptCall(prompt, output, limit, **rest)


def _mixed(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    """Unrelated calls of many lengths."""
    calls, at = [], 0
    for _ in range(draw.randint(4, 14)):
        at += draw.choice([0, 0, 1, 3, 20])
        calls.append(_call(draw, draw.choice([1, 9, 40, 300, 1500]), draw.randint(1, 60), at=at))
    return calls, {}


def _equal_times(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    calls = [
        _call(draw, draw.randint(1, 200), draw.randint(1, 30), at=draw.choice([0, 5]))
        for _ in range(draw.randint(6, 20))
    ]
    return calls, {}


def _boundaries(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    """Prompts and answers that end on and around a page, then asked again."""
    calls: list[ScriptCall] = []
    for _ in range(draw.randint(3, 8)):
        pages = draw.randint(1, 5)
        prompt = max(1, pages * PAGE + draw.choice([-1, 0, 1]))
        output = max(1, draw.choice([1, 2, PAGE]) + draw.choice([-1, 0, 1]))
        first = len(calls)
        calls.append(_call(draw, prompt, output, at=draw.randint(0, 30)))
        calls.append(
            _call(
                draw,
                prompt,
                draw.randint(1, 8),
                after=first,
                delay=draw.choice([0, 1, 7]),
                parent=first,
                shared=prompt,
            )
        )
        calls.append(
            _call(
                draw,
                prompt + output + draw.choice([0, 1, PAGE]),
                draw.randint(1, 8),
                after=first,
                delay=draw.choice([0, 2]),
                parent=first,
                shared=prompt,
                shared_output=output,
            )
        )
    return calls, {}


def _sessions(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    """Agents: turns that extend the one before, with rollbacks."""
    calls: list[ScriptCall] = []
    system = _call(draw, draw.choice([64, 200]), 1, at=0)
    calls.append(system)
    for _ in range(draw.randint(2, 6)):
        prompt, output = system.prompt + draw.randint(1, 300), draw.randint(1, 50)
        previous = len(calls)
        calls.append(_call(draw, prompt, output, at=draw.randint(2, 60), parent=0, shared=system.prompt))
        for _ in range(draw.randint(1, 6)):
            last = calls[previous]
            if draw.random() < 0.2:
                keep, also = draw.randint(0, last.prompt), 0
            else:
                keep, also = last.prompt, last.output
            turn = _call(
                draw,
                keep + also + draw.randint(1, 120),
                draw.randint(1, 50),
                after=previous,
                delay=draw.choice([0, 1, 5, 40]),
                parent=previous,
                shared=keep,
                shared_output=also,
            )
            previous = len(calls)
            calls.append(turn)
    return calls, {}


def _forks(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    """Sub-agents that branch off a conversation, several at once, some while it is computed."""
    root = _call(draw, draw.randint(100, 900), draw.randint(1, 40), at=0)
    calls = [root]
    for _ in range(draw.randint(3, 10)):
        keep = draw.choice([root.prompt, draw.randint(1, root.prompt)])
        early = draw.random() < 0.4
        calls.append(
            _call(
                draw,
                keep + draw.randint(1, 200),
                draw.randint(1, 40),
                at=draw.randint(0, 4) if early else None,
                after=None if early else 0,
                delay=0 if early else draw.choice([0, 0, 6]),
                parent=0,
                shared=keep,
            )
        )
    return calls, {}


def _full_pool(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    """History that does not fit: eviction, blocked heads, preemption or retraction."""
    calls, _ = _sessions(draw, engine) if draw.random() < 0.6 else _mixed(draw, engine)
    most = max(call.prompt + call.limit for call in calls)
    pool = -(-(most + draw.choice([48, 200, 800])) // PAGE) * PAGE
    return calls, {"kv_tokens": pool, "max_num_seqs": 32 if engine == "vllm" else None}


def _windows(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    """Agents and forks while windows, and some history, are evicted: tombstones, branches, returns."""
    calls, _ = draw.choice([_sessions, _sessions, _forks, _boundaries])(draw, engine)
    evictions: list[list[int]] = []
    at = 0
    for _ in range(draw.randint(4, 30)):
        at += draw.choice([1, 3, 10, 30])
        windows = PAGE * draw.choice([0, 1, 1, 2, 4, 8])
        evictions.append([at, PAGE * draw.choice([0, 0, 0, 1, 6]), windows])
    return calls, {"evictions": evictions}


def _preemption(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    """Short prompts, long answers, a small pool: running calls must go."""
    calls = [
        ScriptCall(draw.randint(1, 100), output, output + draw.choice([0, 1, 30]), at=draw.randint(0, 12))
        for output in (draw.randint(40, 200) for _ in range(draw.randint(4, 9)))
    ]
    most = max(call.prompt + call.limit for call in calls)
    extra: dict[str, Any] = {"kv_tokens": -(-(most + draw.choice([64, 160, 300])) // PAGE) * PAGE}
    if engine == "sglang":
        extra |= {"conservativeness": draw.choice([0.0, 0.1, 0.3]), "slots": 32}
    else:
        extra |= {
            "max_num_seqs": 32,
            "reserve_full_isl": draw.random() < 0.5,
            "watermark": draw.choice([0.0, 0.05]),
        }
    return calls, extra


def _long_among_short(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    """One prompt of a million tokens' shape (÷ 64) among short calls."""
    calls = [_call(draw, 15_625, 20, at=draw.randint(0, 10))]
    for _ in range(draw.randint(5, 15)):
        calls.append(_call(draw, draw.randint(1, 60), draw.randint(5, 60), at=draw.randint(0, 60)))
    return calls, {"kv_tokens": 32 * 1024}


def _priorities(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    calls = [
        _call(
            draw,
            draw.randint(1, 300),
            draw.randint(1, 40),
            at=draw.randint(0, 10),
            priority=draw.randint(0, 3),
        )
        for _ in range(draw.randint(5, 14))
    ]
    return calls, {"max_num_seqs": 4} if engine == "vllm" else {"slots": 4}


def _speculation(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    calls, _ = draw.choice([_mixed, _sessions])(draw, engine)
    return calls, {"draft_tokens": draw.choice([1, 3]), "speculation": draw.choice(["mtp", "dspark"])}


def _dropped_blocks(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    """MTP as before vLLM hashed the token after a block too: the last matched block is computed again."""
    calls, extra = _full_pool(draw, engine) if draw.random() < 0.5 else _sessions(draw, engine)
    return calls, extra | {"draft_tokens": draw.choice([1, 3]), "lookahead_hashes": False}


def _aborts(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    """Clients that hang up: in the queue, in a chunk, while they decode, as they end; some pools are full."""
    kinds = [_mixed, _sessions, _forks, _boundaries, _full_pool, _preemption, _speculation, _long_among_short]
    calls, extra = draw.choice(kinds)(draw, engine)
    often = draw.choice([0.2, 0.5, 0.9])
    return [
        replace(call, patience=draw.choice([1, 1, 2, 3, 4, 6, 10, 30])) if draw.random() < often else call
        for call in calls
    ], extra


def _ranks(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    """Two or four DP ranks that step together: a long prompt on one, others decode or idle, full pools."""
    count = draw.choice([2, 4])
    kinds = [_mixed, _equal_times, _sessions, _forks, _full_pool, _preemption, _long_among_short]
    calls, extra = draw.choice(kinds)(draw, engine)
    own = draw.random() < 0.5  # a session stays where it is
    ranks = [draw.randrange(count) for _ in calls]
    for number, call in enumerate(calls):
        if own and call.parent is not None:
            ranks[number] = ranks[call.parent]
    extra |= {"ranks": count, "draft_tokens": draw.choice([0, 0, 1, 3])}
    if not extra["draft_tokens"] and draw.random() < 0.2:
        extra["mixed_chunk"] = True
    if draw.random() < 0.3:
        extra["prefill_decode_interval"] = draw.choice([1, 3])
    return [replace(call, rank=rank) for call, rank in zip(calls, ranks, strict=True)], extra


def _options(draw: random.Random, engine: str) -> tuple[list[ScriptCall], dict[str, Any]]:
    """Every documented option in turn, on agents' sessions."""
    calls, _ = draw.choice([_mixed, _sessions, _forks])(draw, engine)
    if engine == "vllm":
        return calls, draw.choice(
            [
                {"long_prefill_token_threshold": 64, "max_batched_tokens": 512},
                {"prefix_cache": False},
                {"watermark": 0.1, "kv_tokens": 4096},
                {"reserve_full_isl": False, "kv_tokens": 4096},
                {"max_num_seqs": 1},
                {"prefill_schedule_interval": 4},
                {"prefill_schedule_interval": 4, "shares_cadence": True},
            ]
        )
    return calls, draw.choice(
        [
            {"chunk_tokens": None},
            {"schedule_policy": "lpm"},
            {"mixed_chunk": True},
            {"prefill_decode_interval": 3},
            {"prefill_max_requests": 1},
            {"max_prefill_tokens": 64},
            {"prefix_cache": False},
            {"slots": 1},
        ]
    )


KINDS = {
    "mixed": _mixed,
    "equal-times": _equal_times,
    "boundaries": _boundaries,
    "sessions": _sessions,
    "forks": _forks,
    "full-pool": _full_pool,
    "windows": _windows,
    "preemption": _preemption,
    "long-among-short": _long_among_short,
    "priorities": _priorities,
    "speculation": _speculation,
    "dropped-blocks": _dropped_blocks,
    "options": _options,
    "aborts": _aborts,
    "ranks": _ranks,
}
MANY = {"aborts": 60, "ranks": 60}  # scripts of kinds that have a number of their own
