"""The cache owner of one attention-DP rank: its tree and its pools.

Ownership is apart from scheduling: a rank asks its owner for room, the owner evicts. Two pools of
device memory exist, `kv` (full-history pages) and `swa` (sliding-window tokens), plus `slots`
(request slots with their compressor state). Pool usage = resident spans + what running calls hold
privately, so `used + free == capacity` by construction and idle means used == resident.
"""

from __future__ import annotations

from v4sim.cache.legal import NO_HIT, Hit, HitPolicy
from v4sim.cache.marks import WindowMarks
from v4sim.cache.node import SpanNode
from v4sim.cache.pool import Pool
from v4sim.cache.tree import SpanTree


class CacheOwner:
    """Tree + pools of one rank. With `enabled=False` nothing is kept after a call ends."""

    def __init__(
        self,
        tree: SpanTree,
        policy: HitPolicy,
        *,
        kv_tokens: int,
        swa_tokens: int,
        request_slots: int,
        enabled: bool = True,
        marks: WindowMarks | None = None,
    ) -> None:
        page = policy.page_tokens
        self.tree = tree
        self.policy = policy
        self.page_tokens = page
        self.enabled = enabled
        self.marks = marks  # where windows are, if not with the nodes
        self.kv = Pool("kv", kv_tokens // page * page)
        self.swa = Pool("swa", swa_tokens // page * page)
        self.slots = Pool("slots", request_slots)
        self._promised = 0  # of `kv`, by a pass that has not evicted for it yet

    @property
    def pools(self) -> tuple[Pool, Pool, Pool]:
        return self.kv, self.swa, self.slots

    # -- room -----------------------------------------------------------------------------------

    @property
    def kv_available(self) -> int:
        """Free plus evictable history tokens that nobody was promised."""
        return self.kv.free + self.tree.evictable_tokens + self._marked_tokens - self._promised

    @property
    def kv_resident(self) -> int:
        """What is cached, in use or not."""
        return self.tree.kv_tokens + self._marked_tokens

    @property
    def _marked_tokens(self) -> int:
        return 0 if self.marks is None else self.marks.tokens

    @property
    def swa_available(self) -> int:
        return self.swa.free + self.tree.swa_evictable_tokens

    @property
    def kv_promised(self) -> int:
        """History tokens that a pass in progress has set aside."""
        return self._promised

    def make_kv_room(self, tokens: int) -> bool:
        """Evict until `tokens` are free; False (and nothing evicted) if that is impossible."""
        kv, tree = self.kv, self.tree
        free = kv.capacity - kv.used
        if tokens <= free:
            return True
        if tokens > free + tree.kv_tokens - tree.protected_tokens + self._marked_tokens:
            return False
        if self.marks is not None and self.marks.tokens:
            self._evict_with_marks(self.marks, tokens)
            return True
        swa_before = tree.swa_tokens
        kv.give(tree.evict(tokens - free))
        self.swa.give(swa_before - tree.swa_tokens)
        return True

    def _evict_with_marks(self, marks: WindowMarks, tokens: int) -> None:
        """Blocks of windows and pages of history leave as one, the one used longest ago first."""
        kv, tree = self.kv, self.tree
        while kv.free < tokens:
            mark, leaf = marks.oldest(), tree.oldest_leaf()
            if mark is not None and (leaf is None or mark < leaf):
                marks.drop_oldest()
                kv.give(marks.tokens_each)
            else:
                kv.give(tree.evict(self.page_tokens))

    def promise_kv(self, tokens: int) -> bool:
        """Set `tokens` aside, to be taken with `keep_promises`; False if they cannot be had."""
        if tokens > self.kv_available:
            return False
        self._promised += tokens
        return True

    def keep_promises(self, wanted_tokens: int) -> None:
        """Take what was promised, after evicting until `wanted_tokens` are free or nothing is left."""
        promised, self._promised = self._promised, 0
        self.make_kv_room(min(max(wanted_tokens, promised), self.kv_available))
        self.kv.take(promised)

    def make_swa_room(self, tokens: int) -> bool:
        swa, tree = self.swa, self.tree
        free = swa.capacity - swa.used
        if tokens <= free:
            return True
        if tokens > free + tree.swa_evictable_tokens:
            return False
        kv_before = tree.kv_tokens
        swa.give(tree.evict_swa(tokens - free))
        self.kv.give(kv_before - tree.kv_tokens)
        return True

    # -- prefix ---------------------------------------------------------------------------------

    def match(self, uid: int, limit_tokens: int) -> Hit:
        """The legal hit for this content, at most `limit_tokens`. Modifies nothing."""
        if not self.enabled:
            return NO_HIT
        node, length = self.tree.find(uid, limit_tokens)
        if self.marks is None:
            return self.policy.legal_hit(node, length)
        marked = self.marks.latest(uid, length)
        if node is None or not marked:
            return Hit(None, 0, 0, length)
        while node.start >= marked:
            assert node.parent is not None
            node = node.parent
        return Hit(node, marked, 0, length - marked)

    def look_up(self, uid: int, limit_tokens: int) -> Hit:
        """`match` as SGLang does it: the tree is cut where the match ends, and what may be used is used."""
        if not self.enabled:
            return NO_HIT
        tree = self.tree
        node, length = tree.find(uid, limit_tokens)
        if node is not None:
            node = tree.ended_at(node, length)
        hit = self.policy.legal_hit(node, length)
        if hit.node is not None:
            tree.touch(hit.node)
        return hit

    def hold(self, hit: Hit) -> SpanNode | None:
        """Lock a hit's prefix (splitting the node at the boundary); returns the node to release later."""
        node = hit.node
        if node is None:
            return None
        if node.end != hit.tokens:
            node = self.tree.split(node, hit.tokens)
        self.tree.lead_to(node)
        self.tree.lock(node)
        return node

    def use(self, node: SpanNode | None) -> None:
        if node is not None:
            self.tree.touch(node)
            if self.marks is not None:
                self.marks.use(node.uid, node.end, self.tree.tick)

    def mark(self, uid: int, tokens: int) -> None:
        """A window stays before `tokens` of this content, if room for it can be made."""
        marks = self.marks
        if marks is None:
            return
        if not marks.has(uid, tokens):
            if not self.make_kv_room(marks.tokens_each):
                return
            self.kv.take(marks.tokens_each)
        marks.leave(uid, tokens, self.tree.tick)

    def release(self, node: SpanNode | None) -> None:
        if node is not None:
            self.tree.unlock(node)

    def adopt(
        self, uid: int, held: SpanNode | None, upto: int, private_tokens: int, swa_from: int, private_swa: int
    ) -> SpanNode | None:
        """Move a call's private pages [held.end, upto) into the tree and hold the new end instead.

        `private_tokens` = upto − held.end and `private_swa` = upto − swa_from are what the call gives
        up; what is already resident is freed, the rest changes hands. Returns the node now held.
        """
        if not self.enabled:
            return held
        tree = self.tree
        if held is not None and tree.ends(uid, held):
            # Nobody can have inserted these pages meanwhile: all of them change hands.
            return tree.grow(held, upto, swa_from)
        swa_before = tree.swa_tokens
        node, added = tree.insert(uid, held, upto, swa_from)
        if private_tokens != added:
            self.kv.give(private_tokens - added)
        gained = tree.swa_tokens - swa_before
        if private_swa != gained:
            self.swa.give(private_swa - gained)
        if node is None or node is held:
            return held
        tree.lock(node)
        self.release(held)
        return node
