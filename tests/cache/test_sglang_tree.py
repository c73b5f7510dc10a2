"""Where SGLang's nodes begin and end among our spans, and what that does to use and eviction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from v4sim.cache.check import resident
from v4sim.cache.legal import Hit, HitPolicy
from v4sim.cache.owner import CacheOwner
from v4sim.cache.sglang_tree import SGLangTree
from v4sim.prefix import PrefixIndex

PAGE = 4


def contents(parent: list[int], shared: list[int]) -> PrefixIndex:
    """Contents by the one they begin like (-1: none), and for how many tokens."""
    n = len(parent)

    def column(values: list[int]) -> np.ndarray:
        return np.array(values, dtype=np.int64)

    table = SimpleNamespace(
        n=n,
        parent=column(parent),
        shared_tokens=column(shared),
        shared_output_tokens=column([0] * n),
        group=column([-1] * n),
        group_tokens=column([0] * n),
        group_names=[],
    )
    return PrefixIndex(cast(Any, table), PAGE)


def put(tree: SGLangTree, uid: int, upto: int, swa_from: int) -> None:
    """Insert a whole content and let go of it."""
    node, length = tree.find(uid, upto)
    if node is not None and node.end != length:
        node = tree.split(node, length)
    end, _ = tree.insert(uid, node, upto, max(length, swa_from))
    assert end is not None
    tree.lock(end)
    tree.unlock(end)


def test_where_a_match_cuts_a_node_both_parts_count_as_used() -> None:
    tree = SGLangTree(contents([-1, -1, 0], [0, 0, 8]))
    put(tree, 0, 20, swa_from=16)
    put(tree, 1, 20, swa_from=16)
    node, length = tree.find(2, 16)
    assert node is not None
    tree.split(node, length)
    tree.evict(4)  # the page with the window was a node of its own, and not used
    assert [tree.find(uid, 20)[1] for uid in (0, 1)] == [16, 20]
    tree.evict(20)
    assert [tree.find(uid, 20)[1] for uid in (0, 1)] == [16, 0]


def test_what_one_call_inserts_at_once_leaves_at_once_whoever_owns_it() -> None:
    """Content 1 goes on from 0 at 8: SGLang's node knows nothing of that until somebody turns off there."""
    for turned, left in ((False, 0), (True, 8)):
        tree = SGLangTree(contents([-1, 0], [0, 8]))
        put(tree, 1, 20, swa_from=16)
        if turned:
            tree.insert(0, None, 8, 8)
        tree.evict(4)
        assert tree.find(1, 20)[1] == 16
        tree.evict(4)
        assert tree.find(1, 20)[1] == left


def test_a_newcomer_brings_back_a_window_that_was_lost() -> None:
    tree = SGLangTree(contents([-1], [0]))
    put(tree, 0, 12, swa_from=12)
    assert tree.swa_tokens == 0
    tree.insert(0, None, 12, 4)
    assert [(node.swa_start, node.cuts) for node in resident(tree)] == [(4, (4,))]


def test_a_look_up_uses_only_what_may_be_used() -> None:
    """Content 1 shares two pages with 0, whose window lies elsewhere: a match, but no hit."""
    tree = SGLangTree(contents([-1, 0, -1], [0, 8, 0]))
    owner = CacheOwner(tree, HitPolicy("strict", PAGE, 2, 4), kv_tokens=99, swa_tokens=99, request_slots=2)
    put(tree, 0, 16, swa_from=12)
    put(tree, 2, 16, swa_from=12)
    assert owner.look_up(1, 16) == Hit(None, 0, 0, 8)
    spans = sorted((node.uid, node.start, node.end) for node in resident(tree))
    assert spans == [(0, 0, 8), (0, 8, 12), (0, 12, 16), (2, 0, 16)]
    assert owner.look_up(2, 15) == Hit(None, 0, 0, 12)
    assert owner.look_up(2, 16).tokens == 16


def test_a_window_over_several_spans_goes_at_once_and_what_is_newer_still_follows() -> None:
    tree = SGLangTree(contents([-1, 0, 1, -1], [0, 8, 16, 0]))
    put(tree, 2, 28, swa_from=0)
    put(tree, 3, 8, swa_from=0)
    assert tree.evict_swa(25) == 28  # three spans down to the last page, then that
    assert tree.evict_swa(1000) == 8
