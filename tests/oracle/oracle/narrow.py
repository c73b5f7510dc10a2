"""Scripts in which verify windows do not fit the token budget, and a drafter that is never right.

`max_batched_tokens` is below `max_num_seqs` x (1 + drafts): vLLM shortens the window of one running call and
leaves out those behind it. No draft is accepted, since ours leaves out what a shortened window would accept.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oracle.script import Script, ScriptCall


def scripts(count: int) -> list[Script]:
    return [_script(number) for number in range(count)]


def _script(number: int) -> Script:
    draw = random.Random(f"narrow/{number}")
    drafts = draw.choice([1, 2, 3, 3, 5])
    seqs = draw.choice([4, 8, 12])
    options = {
        "page_tokens": 16,
        "kv_tokens": draw.choice([64 * 1024, 64 * 1024, 16 * draw.randint(30, 60)]),
        "max_batched_tokens": draw.randint(max(seqs, drafts + 2), seqs * (1 + drafts)),
        "max_num_seqs": seqs,
        "async_scheduling": draw.random() < 0.5,
        "draft_tokens": drafts,
        "speculation": draw.choice(["mtp", "dspark"]),
    }
    if draw.random() < 0.2:
        options["long_prefill_token_threshold"] = 8
    calls, at = [], 0
    for _ in range(draw.randint(5, 16)):
        at += draw.choice([0, 0, 0, 1, 5])
        output = draw.randint(1, 40)
        calls.append(
            ScriptCall(draw.choice([1, 3, 8, 30, 90]), output, draw.choice([output, output + 1, 200]), at=at)
        )
    return Script(f"narrow-{number:02d}", "narrow", "vllm", options, tuple(calls))


@contextmanager
def never_accepted(*modules: Any) -> Iterator[None]:
    """The rule by which drafts of a script are accepted, in these modules: none is."""
    before = [module.accepted for module in modules]
    for module in modules:
        module.accepted = lambda call, emitted, drafts: 0
    try:
        yield
    finally:
        for module, rule in zip(modules, before, strict=True):
            module.accepted = rule
