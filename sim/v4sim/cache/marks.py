"""Windows as vLLM keeps them under a retention interval of 0: blocks of their own, at a few boundaries.

Each prompt leaves its window and compressor state once, at the last page boundary below its end, and once
more where it found history without a window. A mark says that they are there. It belongs to a content,
whichever call's copy of the history a hit follows, and takes room like any other block: what was used
longest ago leaves first, be it a mark or a page of history.

Left out: that a running call reads a mark, which may leave under it; its own windows are counted apart.
"""

from __future__ import annotations

from bisect import bisect_right, insort

from v4sim.prefix import NO_PARENT, PrefixIndex

Mark = tuple[int, int]  # the content that owns the token below, and the length


class WindowMarks:
    """Lengths of content at which a window is resident. One takes `tokens_each` of the kv pool."""

    def __init__(self, prefixes: PrefixIndex, tokens_each: int = 0) -> None:
        self._prefixes = prefixes
        self.tokens_each = tokens_each
        self._lengths: dict[int, list[int]] = {}  # by owning content, ascending
        self._used: dict[Mark, int] = {}  # when last, oldest first

    @property
    def tokens(self) -> int:
        """Room that all marks take."""
        return len(self._used) * self.tokens_each

    def oldest(self) -> int | None:
        """When the mark that leaves next was used last."""
        return next(iter(self._used.values()), None)

    def has(self, uid: int, tokens: int) -> bool:
        return self._mark(uid, tokens) in self._used

    def leave(self, uid: int, tokens: int, tick: int) -> None:
        """The window before `tokens` of this content is resident from now on."""
        mark = self._mark(uid, tokens)
        if mark not in self._used:
            insort(self._lengths.setdefault(mark[0], []), tokens)
        self._used.pop(mark, None)
        self._used[mark] = tick

    def use(self, owner: int, tokens: int, tick: int) -> None:
        """A hit ends at `tokens`, whose last belongs to `owner`."""
        if self._used.pop((owner, tokens), None) is not None:
            self._used[owner, tokens] = tick

    def drop_oldest(self) -> None:
        owner, tokens = next(iter(self._used))
        del self._used[owner, tokens]
        lengths = self._lengths[owner]
        lengths.remove(tokens)
        if not lengths:
            del self._lengths[owner]

    def latest(self, uid: int, limit_tokens: int) -> int:
        """The longest length of this content with a window, at most `limit_tokens`; 0 if there is none."""
        prefixes, limit = self._prefixes, limit_tokens
        while uid != NO_PARENT:
            lengths = self._lengths.get(uid, ())
            place = bisect_right(lengths, limit)
            if place:
                return lengths[place - 1]
            limit = min(limit, prefixes.start(uid))
            uid = prefixes.parent(uid)
        return 0

    def _mark(self, uid: int, tokens: int) -> Mark:
        while self._prefixes.start(uid) >= tokens:
            uid = self._prefixes.parent(uid)
        return uid, tokens
