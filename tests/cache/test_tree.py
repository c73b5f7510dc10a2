"""The span tree against a model that keeps pages one by one, and its eviction order by example."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from v4sim.cache.check import check_tree, resident
from v4sim.cache.legal import HitPolicy
from v4sim.cache.node import SpanNode
from v4sim.cache.owner import CacheOwner
from v4sim.cache.sglang_tree import SGLangTree
from v4sim.cache.tree import SpanTree
from v4sim.cache.vllm_tree import VLLMTree
from v4sim.errors import LawError
from v4sim.prefix import NO_PARENT, PrefixIndex
from v4traces import TraceTable

PAGE = 4


@dataclass
class Rows:
    """As much of a trace as a prefix index reads."""

    parent: list[int]
    shared: list[int]
    group: list[int] = field(default_factory=list)
    group_tokens: list[int] = field(default_factory=list)

    def index(self, page: int = PAGE, ahead: int = 0) -> PrefixIndex:
        @dataclass
        class Columns:
            n: int
            parent: np.ndarray
            shared_tokens: np.ndarray
            shared_output_tokens: np.ndarray
            group: np.ndarray
            group_tokens: np.ndarray
            group_names: list[str]

        n = len(self.parent)
        group = self.group or [-1] * n
        columns = Columns(
            n,
            np.array(self.parent, dtype=np.int64),
            np.array(self.shared, dtype=np.int64),
            np.zeros(n, dtype=np.int64),
            np.array(group, dtype=np.int64),
            np.array(self.group_tokens or [0] * n, dtype=np.int64),
            [f"g{i}" for i in range(max(group) + 1)],
        )
        return PrefixIndex(cast(TraceTable, columns), page, ahead)


# Eight contents: a chain, forks at several lengths, one that repeats its parent's inherited part only.
CONTENTS = Rows(
    parent=[-1, 0, 1, 1, 0, -1, 5, 2],
    shared=[0, 10, 22, 9, 3, 0, 16, 31],
    group=[0, -1, -1, -1, -1, 0, -1, -1],
    group_tokens=[9, 0, 0, 0, 0, 9, 0, 0],
)
LENGTH = 44


def pages_of(prefixes: PrefixIndex, uid: int, tokens: int) -> list[tuple[int, int]]:
    """Identity of each whole page of a content: (owning span, page number)."""
    pages = []
    for page in range(tokens // PAGE):
        owner = uid
        while owner != NO_PARENT and prefixes.start(owner) > page * PAGE:
            owner = prefixes.parent(owner)
        pages.append((owner, page))
    return pages


class TreeMachine(RuleBasedStateMachine):
    """Insert, hold, release and evict; whatever happens, hits are what a page-by-page model says."""

    def __init__(self) -> None:
        super().__init__()
        self.prefixes = CONTENTS.index()
        self.tree = SGLangTree(self.prefixes)
        self.held: list[tuple[int, int, SpanNode]] = []
        self.known: set[tuple[int, int]] = set()

    def resident(self) -> set[tuple[int, int]]:
        pages = set()
        for node in resident(self.tree):
            pages |= {(node.uid, page) for page in range(node.start // PAGE, node.end // PAGE)}
        return pages

    @rule(uid=st.integers(0, 7), tokens=st.integers(1, LENGTH), window=st.integers(0, 3))
    def insert(self, uid: int, tokens: int, window: int) -> None:
        upto = tokens // PAGE * PAGE
        node, length = self.tree.find(uid, upto)
        if node is not None and node.end != length:
            node = self.tree.split(node, length)
        if node is not None:
            self.tree.lock(node)
        before = self.tree.kv_tokens
        end, added = self.tree.insert(uid, node, upto, max(length, upto - window * PAGE))
        assert self.tree.kv_tokens - before == added
        self.known |= set(pages_of(self.prefixes, uid, upto))
        assert set(pages_of(self.prefixes, uid, upto)) <= self.resident()
        if end is not None:
            assert end.end == max(upto, length)
            self.tree.lock(end)
            self.held.append((uid, end.end, end))
        if node is not None:
            self.tree.unlock(node)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        self.tree.unlock(self.held.pop(index)[2])

    @rule(tokens=st.integers(1, 40))
    def evict(self, tokens: int) -> None:
        before, possible = self.tree.kv_tokens, self.tree.evictable_tokens
        freed = self.tree.evict(tokens)
        assert before - self.tree.kv_tokens == freed
        assert freed >= min(tokens, possible)

    @rule(tokens=st.integers(1, 20))
    def evict_windows(self, tokens: int) -> None:
        before, possible = self.tree.swa_tokens, self.tree.swa_evictable_tokens
        freed = self.tree.evict_swa(tokens)
        assert before - self.tree.swa_tokens == freed
        assert freed >= min(tokens, possible)

    @invariant()
    def totals_agree(self) -> None:
        check_tree(self.tree)

    @invariant()
    def hits_are_the_longest_resident_prefix(self) -> None:
        resident = self.resident()
        assert resident <= self.known
        for uid in range(8):
            expected = 0
            for page in pages_of(self.prefixes, uid, LENGTH):
                if page not in resident:
                    break
                expected += PAGE
            node, length = self.tree.find(uid, LENGTH)
            assert length == expected
            assert (node is None) == (expected == 0)
            if node is not None:
                assert node.start < length <= node.end

    @invariant()
    def held_prefixes_stay(self) -> None:
        for uid, end, node in self.held:
            assert node.alive
            assert node.end == end
            assert self.tree.find(uid, end)[1] == end


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


class PageGrainMachine(TreeMachine):
    """The same laws where leaves shrink page by page and nothing is merged (vLLM)."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = VLLMTree(self.prefixes)

    @rule(uid=st.integers(0, 7), tokens=st.integers(1, LENGTH), used=st.integers(0, LENGTH))
    def compute_again(self, uid: int, tokens: int, used: int) -> None:
        """A call takes less from the cache than is there; what it computes is added whole."""
        upto = tokens // PAGE * PAGE
        below, length = self.tree.find(uid, min(used, upto))
        if below is not None and below.end != length:
            below = self.tree.split(below, length)
        if below is not None:
            self.tree.lead_to(below)
        before = self.tree.kv_tokens
        end, added = self.tree.insert(uid, below, upto, length)
        assert added == self.tree.kv_tokens - before == upto - length
        self.known |= set(pages_of(self.prefixes, uid, upto))
        if end is not None:
            self.tree.lock(end)
            self.held.append((uid, end.end, end))


TestPageGrain = PageGrainMachine.TestCase
TestPageGrain.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def put(tree: SpanTree, uid: int, upto: int, swa_from: int = 0) -> None:
    """Insert a whole content and let go of it."""
    node, length = tree.find(uid, upto)
    if node is not None and node.end != length:
        node = tree.split(node, length)
    end, _ = tree.insert(uid, node, upto, max(length, swa_from))
    assert end is not None
    tree.lock(end)
    tree.unlock(end)


def test_the_least_recently_used_leaf_goes_first_and_a_use_covers_the_whole_path() -> None:
    tree = SGLangTree(Rows([-1, -1, 0], [0, 0, 8]).index())
    put(tree, 0, 8)
    put(tree, 1, 8)
    put(tree, 2, 16)  # extends content 0, so 0 is used again
    tree.evict(8)
    assert tree.find(1, 16)[1] == 0
    assert tree.find(2, 16)[1] == 16


def test_sglang_evicts_the_last_page_then_the_window_then_the_rest_at_once_and_vllm_page_by_page() -> None:
    for kind, left in ((SGLangTree, [20, 16, 0]), (VLLMTree, [20, 16, 12])):
        tree = kind(Rows([-1], [0]).index())
        put(tree, 0, 24, swa_from=16)
        for expected in left:
            tree.evict(1)
            assert tree.find(0, 24)[1] == expected


def test_what_two_calls_computed_alike_is_held_twice_and_lasts_until_both_copies_are_gone() -> None:
    tree = VLLMTree(Rows([-1, 0], [0, 8]).index())
    first, _ = tree.insert(0, None, 8, 8)
    assert first is not None
    tree.lock(first)
    again, added = tree.insert(1, None, 12, 12)  # 8 tokens of content 0, computed once more, and 4 of its own
    assert again is not None
    tree.lock(again)
    assert (added, tree.kv_tokens) == (12, 20)
    tree.unlock(again)
    tree.unlock(first)
    left = []
    while tree.kv_tokens:
        tree.evict(PAGE)
        left.append((tree.kv_tokens, tree.find(0, 8)[1], tree.find(1, 12)[1]))
    assert left == [(16, 8, 12), (12, 8, 12), (8, 8, 8), (4, 4, 4), (0, 0, 0)]


def test_a_hit_goes_over_the_copy_that_came_first_so_that_the_other_one_may_leave() -> None:
    """Content 1 was computed below a second copy of 8 tokens; whoever hits it needs one copy only."""
    tree = VLLMTree(Rows([-1, 0], [0, 8]).index())
    first, _ = tree.insert(0, None, 8, 8)
    again, _ = tree.insert(1, None, 12, 12)
    for node in (first, again):
        assert node is not None
        tree.lock(node)
        tree.unlock(node)
    node, length = tree.find(1, 12)
    assert (node, length) == (again, 12)
    assert node is not None
    tree.lead_to(node)
    tree.lock(node)
    assert node.parent is first
    assert tree.evictable_tokens == 8
    assert tree.evict(8) == 8
    assert tree.find(1, 12)[1] == 12
    check_tree(tree)


def test_what_was_let_go_at_once_leaves_from_its_end_even_where_the_way_to_it_has_changed() -> None:
    tree = VLLMTree(Rows([-1, 0], [0, 8]).index())
    first, _ = tree.insert(0, None, 8, 8)
    again, _ = tree.insert(1, None, 16, 16)
    for node in (first, again):
        assert node is not None
        tree.lock(node)
    assert first is not None
    assert again is not None
    tree.touch(again)
    tree.unlock(again)  # 8 tokens of its own below a copy of the first 8
    tree.lead_to(again)
    left = []
    while tree.evictable_tokens:
        tree.evict(PAGE)
        left.append(tree.find(1, 16)[1])
    assert left == [12, 8, 8, 8]


def test_windows_leave_from_the_root_first_so_that_a_session_can_still_resume_at_its_end() -> None:
    tree = SGLangTree(Rows([-1, 0, 1], [0, 8, 16]).index())
    for uid, upto in ((0, 8), (1, 16), (2, 24)):
        put(tree, uid, upto)
    tree.evict_swa(8)
    starts = {node.uid: node.swa_tokens for node in resident(tree)}
    assert starts == {0: 0, 1: 8, 2: 8}


def test_what_loses_the_window_at_the_end_of_a_leaf_goes_with_it_and_what_is_above_stays() -> None:
    tree = SGLangTree(Rows([-1, -1], [0, 0]).index())
    put(tree, 0, 12, swa_from=4)
    put(tree, 1, 8)
    tree.evict_swa(4)
    assert tree.find(0, 12)[1] == 12
    tree.evict_swa(4)
    assert tree.find(0, 12)[1] == 8
    assert tree.kv_tokens == 16


def test_a_request_larger_than_the_pool_never_pushes_occupancy_above_capacity() -> None:
    """LMCache#1826: no ghost tokens, whatever is asked for."""
    prefixes = Rows([-1, -1], [0, 0]).index()
    owner = CacheOwner(
        SGLangTree(prefixes), HitPolicy("strict", PAGE, 2, 4), kv_tokens=20, swa_tokens=20, request_slots=2
    )
    assert not owner.make_kv_room(24)
    with pytest.raises(LawError, match="can never hold more"):
        owner.kv.take(24)
    assert owner.make_kv_room(20)


def test_pages_are_shared_between_copies_only_where_the_content_is() -> None:
    prefixes = CONTENTS.index()
    copy = prefixes.stride
    assert prefixes.parent(2 + copy) == 1 + copy
    assert prefixes.parent(0 + copy) == prefixes.parent(0)  # the group's common prefix


@pytest.mark.parametrize(("shared", "start"), [(7, 4), (8, 4), (9, 8)])
def test_with_lookahead_the_token_after_a_page_must_be_the_same_too(shared: int, start: int) -> None:
    """A page of 4: at 8 shared tokens the second one is followed by something else."""
    prefixes = Rows([-1, 0], [0, shared]).index(ahead=1)
    assert prefixes.start(1) == start
    assert Rows([-1, 0], [0, shared]).index().start(1) == shared // PAGE * PAGE


def test_a_span_hangs_off_the_call_that_owns_the_token_before_it() -> None:
    """Content 3 shares 9 tokens with 1, which took its first 8 from 0: it is a child of 0."""
    prefixes = CONTENTS.index()
    assert prefixes.parent(3) == 0 or prefixes.start(3) > prefixes.start(prefixes.parent(3))
    for uid in range(8):
        above = prefixes.parent(uid)
        assert above == NO_PARENT or prefixes.start(uid) > prefixes.start(above)


def test_what_lives_on_without_a_window_keeps_no_dead_node_in_memory() -> None:
    """The beginning of a held session was once the neighbour, among windows, of one that has gone."""

    def dead_nodes() -> int:
        gc.collect()
        return sum(type(found) is SpanNode and not found.alive for found in gc.get_objects())

    before = dead_nodes()
    tree = SGLangTree(Rows([-1, -1, 0], [0, 0, 8]).index(), keeps_leaves=True)
    put(tree, 0, 8)
    put(tree, 1, 8)
    begin, _ = tree.find(2, 8)
    held, _ = tree.insert(2, begin, 16, 8)
    assert held is not None
    tree.lock(held)
    tree.evict_swa(16)
    tree.evict(8)
    assert tree.kv_tokens == 16
    assert dead_nodes() == before
