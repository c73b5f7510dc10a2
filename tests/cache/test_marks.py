"""Windows that stay at marks: where a content has one, and how they share the pool with the history."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from v4sim.cache.legal import Hit, HitPolicy
from v4sim.cache.marks import WindowMarks
from v4sim.cache.owner import CacheOwner
from v4sim.cache.vllm_tree import VLLMTree
from v4sim.prefix import PrefixIndex

PAGE = 4


def index() -> PrefixIndex:
    """Content 1 continues content 0 after 8 tokens, content 2 after 16; content 3 is another."""
    columns: Any = SimpleNamespace(
        n=4,
        parent=np.array([-1, 0, 0, -1]),
        shared_tokens=np.array([0, 8, 16, 0]),
        shared_output_tokens=np.zeros(4, dtype=np.int64),
        group=np.full(4, -1),
        group_tokens=np.zeros(4, dtype=np.int64),
        group_names=[],
    )
    return PrefixIndex(columns, PAGE)


def owner(pages: int, mark_pages: int = 2) -> CacheOwner:
    prefixes = index()
    return CacheOwner(
        VLLMTree(prefixes),
        HitPolicy("strict", PAGE, 2, 1),
        kv_tokens=pages * PAGE,
        swa_tokens=1 << 20,
        request_slots=9,
        marks=WindowMarks(prefixes, mark_pages * PAGE),
    )


def cache(cache_owner: CacheOwner, uid: int, tokens: int, *marks: int) -> None:
    """A call computes `tokens` of a content, ends, and leaves its windows at `marks`."""
    cache_owner.make_kv_room(tokens)
    cache_owner.kv.take(tokens)
    held = cache_owner.adopt(uid, None, tokens, tokens, tokens, 0)
    for mark in marks:
        cache_owner.mark(uid, mark)
    cache_owner.use(held)
    cache_owner.release(held)


def test_a_mark_belongs_to_whoever_shares_the_content_below_it() -> None:
    marks = WindowMarks(index())
    marks.leave(0, 12, 1)
    marks.leave(1, 16, 2)
    assert [marks.latest(0, limit) for limit in (11, 12, 99)] == [0, 12, 12]
    assert marks.latest(1, 99) == 16
    assert marks.latest(1, 15) == 0, "content 1 parts from 0 after 8 tokens, before the mark at 12"
    assert marks.latest(2, 99) == 12, "content 2 parts after 16"
    assert marks.latest(3, 99) == 0


def test_a_hit_ends_at_the_latest_mark_and_says_what_the_history_allowed() -> None:
    world = owner(pages=20)
    cache(world, 0, 20, 12)
    hit = world.match(0, 19)
    assert (hit.tokens, hit.lost_tokens) == (12, 4)
    assert world.match(1, 19) == Hit(None, 0, 0, 8), "the history of 8 tokens has no window"


def test_marks_take_room_and_what_was_used_longest_ago_leaves_first() -> None:
    world = owner(pages=10)
    cache(world, 0, 16, 12)
    assert (world.kv.used, world.kv_resident) == (24, 24)
    cache(world, 3, 16, 12)
    assert world.kv.used == world.kv_resident == 40
    assert world.match(0, 15).tokens == 0, "its mark was older than its history, and left"
    assert world.tree.kv_tokens == 32
    assert world.match(3, 15).tokens == 12


def test_a_hit_keeps_its_mark_young() -> None:
    world = owner(pages=12)
    cache(world, 0, 16, 12)
    cache(world, 3, 16, 12)
    hit = world.match(0, 15)
    held = world.hold(hit)
    world.use(held)
    world.release(held)
    world.make_kv_room(4 * PAGE)
    assert world.match(0, 15).tokens == 12
    assert world.match(3, 15).tokens == 0


def test_room_that_cannot_be_had_leaves_no_mark() -> None:
    world = owner(pages=4)
    world.kv.take(16)
    world.mark(0, 12)
    assert world.kv.used == 16
    assert world.marks is not None
    assert world.marks.tokens == 0
