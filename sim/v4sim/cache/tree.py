"""The radix tree of one cache owner: which spans are resident, in what order they leave.

One tree belongs to one attention-DP rank (ranks do not share KV). Nodes are spans, not blocks, so
a million-token session costs a handful of them. Invariants, checked by `cache.check`:

* a resident node's parent is resident and ends where the node begins;
* `kv_tokens` is the sum of node sizes, `protected_tokens` that of nodes with locks;
* `swa_tokens` is the sum of what nodes hold of the sliding window.

Eviction is least recently used, leaves only. Recency is kept lazily: using a node uses all its ancestors,
and that is applied when an ancestor becomes a leaf. Here spans are what is kept, used and evicted; what
the engines do otherwise is in `sglang_tree` (its nodes) and `vllm_tree` (blocks).
"""

from __future__ import annotations

from v4sim.cache.leaves import LeafQueue
from v4sim.cache.node import SpanNode
from v4sim.cache.windows import Windows
from v4sim.prefix import NO_PARENT, PrefixIndex


class SpanTree:
    """Resident spans of one owner.

    `keeps_leaves`: a leaf that loses its window keeps its history. Without it the leaf goes whole, as
    where nothing could resume there.
    """

    def __init__(self, prefixes: PrefixIndex, *, keeps_leaves: bool = False) -> None:
        self.prefixes = prefixes
        self.page_tokens = prefixes.page_tokens
        self.keeps_leaves = keeps_leaves
        self.kv_tokens = 0
        self.protected_tokens = 0
        self.evicted_tokens = 0
        self.swa_evicted_tokens = 0
        self._tails: dict[int, SpanNode] = {}
        self._leaves = LeafQueue()
        self.windows = self._make_windows()
        self._reach_tokens = 2 * self.page_tokens  # a window, which is at most a page, and a page
        self.tick = 0  # the moment of the latest use

    def _make_windows(self) -> Windows:
        return Windows(self.page_tokens)

    @property
    def evictable_tokens(self) -> int:
        return self.kv_tokens - self.protected_tokens

    @property
    def swa_tokens(self) -> int:
        return self.windows.tokens

    @property
    def swa_evictable_tokens(self) -> int:
        return self.windows.tokens - self.windows.protected_tokens

    # -- lookup ---------------------------------------------------------------------------------

    def find(self, uid: int, limit_tokens: int) -> tuple[SpanNode | None, int]:
        """Longest resident history of content `uid`, at most `limit_tokens` (floored to a page).

        Returns the node that contains the boundary, and the boundary. Modifies nothing.
        """
        prefixes, tails = self.prefixes, self._tails
        limit = limit_tokens // self.page_tokens * self.page_tokens
        while uid != NO_PARENT:
            start = prefixes.start(uid)
            if start < limit:
                tail = tails.get(uid)
                if tail is not None:
                    limit = min(limit, tail.end)
                    while tail.start >= limit:
                        assert tail.parent is not None
                        tail = tail.parent
                    return tail, limit
                limit = start
            uid = prefixes.parent(uid)
        return None, 0

    # -- use ------------------------------------------------------------------------------------

    def touch(self, node: SpanNode) -> None:
        """Mark `node` and all above it as just used, and the window that is read there.

        The history's recency of ancestors is implied; that of their windows is not, since an
        ancestor can lose its window before its descendants do.
        """
        self.tick += 1
        node.access = self.tick
        self.windows.use(node, self._reach_tokens)

    def split(self, node: SpanNode, at: int) -> SpanNode:
        """Cut `node` at `at`; returns the upper part [start, at). `node` stays itself as the lower part."""
        upper = SpanNode(node.uid, node.start, at, node.parent, node.access)
        upper.children = 1
        upper.born = node.born
        upper.locks = 1 if node.locks else 0
        upper.swa_start = min(node.swa_start, at)
        self.windows.part(upper, node)
        # The page that a lock on the window protects lies at the node's end: the upper part is free of it.
        node.swa_start = max(node.swa_start, at)
        node.start = at
        node.parent = upper
        return upper

    def ended_at(self, node: SpanNode, at: int) -> SpanNode:
        """The node that ends at `at`, which `node` contains: itself, or its upper part."""
        return node if node.end == at else self.split(node, at)

    def lead_to(self, node: SpanNode) -> None:
        """A hit that ends with `node` is about to be held: the way to it may still be chosen."""

    def lock(self, node: SpanNode) -> None:
        """Protect `node` and its ancestors from eviction, and the last page of window at its end."""
        self.windows.hold(node)
        above: SpanNode | None = node
        while above is not None:
            above.locks += 1
            if above.locks > 1:
                return
            self.protected_tokens += above.tokens
            above = above.parent

    def ends(self, uid: int, node: SpanNode) -> bool:
        """Whether `node` is the last resident span of content `uid` itself."""
        return node.uid == uid and self._tails[uid] is node

    def grow(self, held: SpanNode, upto: int, swa_from: int) -> SpanNode:
        """`insert` below a locked node that ends its content, and move the lock to the new node.

        What every chunk of a long prompt does, in one go.
        """
        self.tick += 1
        node = self._append(held.uid, held.end, upto, held, swa_from, upto)
        node.locks = 1  # held.locks stays: its direct holder becomes a locked child
        self.protected_tokens += upto - held.end
        self.windows.hold(node)
        self.windows.let_go(held)
        if upto - held.end < self._reach_tokens:
            self.touch(node)
        return node

    def unlock(self, node: SpanNode) -> None:
        self.windows.let_go(node)
        above: SpanNode | None = node
        while above is not None:
            above.locks -= 1
            if above.locks:
                return
            self.protected_tokens -= above.tokens
            if above.children == 0:
                self._leaves.push(above)
            above = above.parent

    # -- growth ---------------------------------------------------------------------------------

    def insert(
        self, uid: int, below: SpanNode | None, upto: int, swa_from: int
    ) -> tuple[SpanNode | None, int]:
        """Make the content of `uid` resident up to `upto` (a page multiple), starting under `below`.

        `below` is a resident node on the content's path (None: the root). The sliding window is
        resident from `swa_from` on. Returns the node that ends at `upto`, which the caller must lock
        (unlocking it later offers it to eviction), and the number of tokens that were added; pages
        that someone else inserted meanwhile are not added again.
        """
        begin = below.end if below is not None else 0
        if upto <= begin:
            return below, 0
        self.tick += 1
        added = 0
        node = below
        for owner, segment_end in self.prefixes.segments(uid, begin, upto):
            segment_start = max(begin, self.prefixes.start(owner))
            tail = self._tails.get(owner)
            if tail is not None and tail.end > segment_start:
                end = min(segment_end, tail.end)
                node, new = self._meet(tail, segment_start, end, node, swa_from)
                added += new
                segment_start = end
            if segment_start < segment_end:
                node = self._append(owner, segment_start, segment_end, node, swa_from, upto)
                added += segment_end - segment_start
        assert node is not None
        holder: SpanNode | None = node
        while holder is not None and holder is not below and swa_from < holder.end:
            self._restore(holder, max(holder.start, swa_from))
            holder = holder.parent
        self.touch(node)
        return node, added

    def _restore(self, node: SpanNode, swa_from: int) -> None:
        self.windows.restore(node, swa_from)

    def _meet(
        self, tail: SpanNode, start: int, end: int, above: SpanNode | None, swa_from: int
    ) -> tuple[SpanNode, int]:
        """[start, end) of an insertion is resident already: the node that ends there, and tokens added."""
        node = tail
        while node.start >= end:
            assert node.parent is not None
            node = node.parent
        return self.ended_at(node, end), 0

    def _append(
        self, uid: int, start: int, end: int, parent: SpanNode | None, swa_from: int, upto: int
    ) -> SpanNode:
        """The new tail of content `uid`. `swa_from` and `upto`: of everything that is inserted at once."""
        node = self._tails[uid] = self._add(uid, start, end, parent, swa_from)
        return node

    def _add(self, uid: int, start: int, end: int, parent: SpanNode | None, swa_from: int) -> SpanNode:
        if parent is not None:
            parent.children += 1
        node = SpanNode(uid, start, end, parent, self.tick)
        node.swa_start = min(max(start, swa_from), end)
        self.kv_tokens += end - start
        self.windows.add(node)
        return node

    # -- eviction -------------------------------------------------------------------------------

    def evict(self, tokens: int) -> int:
        """Free at least `tokens` of history, oldest leaves first; returns what was freed (maybe less)."""
        freed = 0
        while freed < tokens:
            leaf = self._leaves.pop()
            if leaf is None:
                break
            freed += self._evict_leaf(leaf, tokens - freed)
        self.evicted_tokens += freed
        return freed

    def oldest_leaf(self) -> int | None:
        """When what leaves next was used last."""
        return self._leaves.oldest()

    def _evict_leaf(self, leaf: SpanNode, wanted_tokens: int) -> int:
        """Drop of an unlocked leaf what goes at once where so much is wanted; returns what was freed."""
        grain = self._grain(leaf, wanted_tokens)
        self._drop(leaf, grain)
        return grain

    def _grain(self, leaf: SpanNode, wanted_tokens: int) -> int:
        """Tokens at the end of a leaf that go at once."""
        return leaf.tokens

    def _drop(self, leaf: SpanNode, tokens: int) -> None:
        """Drop the last `tokens` of a leaf."""
        if tokens < leaf.tokens:
            self._shorten(leaf, tokens)
            self._leaves.push(leaf)
        else:
            self._remove(leaf)

    def evict_swa(self, tokens: int) -> int:
        """Free at least `tokens` of sliding window, oldest first.

        What lies inside becomes a tombstone; the end of an unlocked leaf goes with its history, unless
        leaves are kept. A node that a running call reads keeps its last page of window.
        """
        freed = 0
        for node in self.windows:
            last = node.end - (self.windows.read_tokens(node) if node.swa_locks else 0)
            while freed < tokens and node.swa_start < last:
                stop = self._window_stop(node, last)
                held = self.windows.tokens
                if stop == node.end and not (node.children or node.locks or self.keeps_leaves):
                    gone = self._grain(node, node.tokens)
                    self.evicted_tokens += gone
                    self._drop(node, gone)
                    freed += held - self.windows.tokens
                    break
                self.windows.lose(node, stop)
                freed += held - self.windows.tokens
            if freed >= tokens:
                break
        self.swa_evicted_tokens += freed
        return freed

    def _window_stop(self, node: SpanNode, last: int) -> int:
        """Up to where the window of `node` goes at once, at most to `last`."""
        return last

    def _shorten(self, node: SpanNode, cut: int) -> None:
        """Drop the last `cut` tokens of a leaf; its window goes with them."""
        self.windows.lose_end(node, node.end - cut)
        self.kv_tokens -= cut

    def _remove(self, node: SpanNode) -> None:
        node.alive = False
        self.kv_tokens -= node.tokens
        self.windows.remove(node)
        above = node.parent
        self._forget(node, above if above is not None and above.uid == node.uid else None)
        if above is not None:
            above.children -= 1
            above.access = max(above.access, node.access)
            if above.children == 0 and above.locks == 0:
                self._leaves.push(above)

    def _forget(self, node: SpanNode, before: SpanNode | None) -> None:
        """Lookups of the content of `node` end with `before`, what led to it within that content."""
        if before is not None:
            self._tails[node.uid] = before
        else:
            del self._tails[node.uid]

    def lowest(self) -> list[SpanNode]:
        """Nodes from which every other one is reached upwards."""
        return list(self._tails.values())
