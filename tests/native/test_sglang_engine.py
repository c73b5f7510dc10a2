"""The adapter of SGLang over made-up objects: numbers in, names out, and back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from loop import Loop, sglang_options

from v4sim.engine.native.base import Batch, Request, Row
from v4sim.engine.native.content import ContentTokens
from v4sim.engine.native.sglang_engine import SglangEngine, rules
from v4sim.prefix import PrefixIndex

# Call 1 goes on after call 0: 600 tokens of prompt and 3 of its output.
CONTENT: Any = SimpleNamespace(
    n=2,
    group_names=[],
    parent=np.array([-1, 0]),
    shared_tokens=np.array([0, 600]),
    shared_output_tokens=np.array([0, 3]),
    group=np.array([-1, -1]),
    group_tokens=np.array([0, 0]),
)


def engine(**how: Any) -> tuple[SglangEngine, Loop]:
    options = sglang_options(**how)
    loop = Loop(options)
    return SglangEngine(loop, options, PrefixIndex(CONTENT, 1)), loop  # type: ignore[arg-type]


def test_a_call_is_a_request_with_the_tokens_of_its_content() -> None:
    own, loop = engine()
    own.add(Request(number=7, uid=0, prompt_tokens=600, max_new_tokens=50, priority=2))
    own.add(Request(number=71, uid=1, prompt_tokens=700, max_new_tokens=60, priority=0))
    assert loop.calls == ["enter 7. 600 50 2", "enter 71. 700 60 0"]
    first, second = (request.origin_input_ids for request in loop.waiting_queue)
    assert second[:600] == first
    assert second[600:603] == ContentTokens(PrefixIndex(CONTENT, 1), 0).names(600, 603)
    assert not set(second[603:]) & set(ContentTokens(PrefixIndex(CONTENT, 1), 0).names(0, 5000))


def test_a_prefill_then_a_decode_with_drafts() -> None:
    own, loop = engine(draft_tokens=2)
    own.add(Request(3, 0, 600, 50, 0))
    assert own.schedule() == Batch([Row(3, 256, 344)], [])
    own.hand_over({3: 1}, frozenset())
    assert own.schedule() == Batch([], [])
    assert own.decode() == Batch([Row(3, 600, 3)], [], [])
    own.hand_over({3: 2}, frozenset())
    own.decode()
    own.hand_over({3: 3}, frozenset({3}))
    # A prefill publishes its prompt, verified tokens are held; the answer ends with its last token.
    assert loop.calls[1:] == ["append 3. 1 01", "append 3. 2 10", "append 3. 3 10"]
    assert loop.running[0].output_ids == ContentTokens(PrefixIndex(CONTENT, 1), 0).names(600, 606)
    assert loop.running[0].done
    assert own.decode().rows == []


def test_what_a_step_yields_that_nobody_wants() -> None:
    """The middle of a prompt, a call that lost its place, one that ended before."""
    own, loop = engine()
    for number in range(3):
        own.add(Request(number, 0, 600, 50, 0))
    loop.chunked_req = loop.waiting_queue[0]
    loop.chunked_req.inflight_middle_chunks = 1
    own.schedule()
    own.hand_over({0: 0}, frozenset())
    assert loop.chunked_req.inflight_middle_chunks == 0
    loop.chunked_req = None
    own.schedule()
    loop.running[1].is_retracted = True
    own.hand_over({1: 1}, frozenset())
    own.schedule()
    loop.running[2].done = True
    own.hand_over({}, frozenset())
    assert [word for word in loop.calls if word.startswith("append")] == []


def test_who_is_given_up_leaves_with_its_next_step() -> None:
    own, loop = engine()
    own.add(Request(5, 0, 600, 50, 0))
    own.schedule()
    own.hand_over({5: 1}, frozenset())
    own.drop(5)
    loop.running[0].to_finish = "aborted"
    own.decode()
    own.hand_over({}, frozenset())
    assert loop.calls[-2:] == ["give up 5.", "append 5. 0 00"]


def test_who_lost_its_place_is_named() -> None:
    own, loop = engine()
    loop.retracted, loop.aborted = ["12.", "4."], ["1."]
    assert own.decode() == Batch([], [12, 4], [1])


def test_gauges_leave_out_what_can_be_evicted() -> None:
    own, _ = engine()
    assert own.capacity_tokens == 1 << 16
    assert own.used_tokens == (1 << 16) - 60_000
    assert own.used_window_tokens == (1 << 15) - 10_000


def test_what_history_would_have_allowed() -> None:
    own, loop = engine()
    own.add(Request(0, 0, 600, 50, 0))
    assert own.lost_tokens(0, 256) == 0
    loop.waiting_queue[0].swa_branching_seqlen = 512
    assert own.lost_tokens(0, 256) == 256


def test_ranks_of_a_group_keep_one_cadence() -> None:
    own, loop = engine(prefill_decode_interval=4)
    own.saw_prefill()
    assert loop._prefill_decode_interval_remaining == 4
    own.on_idle()
    assert loop._prefill_decode_interval_remaining == 0


@pytest.mark.parametrize("waits", [False, True])
def test_the_estimate_restarts_where_nobody_is_left(waits: bool) -> None:
    own, loop = engine()
    if waits:
        own.add(Request(0, 0, 600, 50, 0))
    own.on_idle()
    assert ("reset" in loop.calls) == (not waits)


def test_rules_follow_the_options() -> None:
    chosen = rules(sglang_options(mixed_chunk=True, overlap=False, chunk_tokens=None, draft_tokens=1))
    assert (chosen.mixes, chosen.late_results, chosen.max_batched_tokens) == (True, False, 16384)
    assert rules(sglang_options(prefill_decode_interval=2)).counts_rounds
