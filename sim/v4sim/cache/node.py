"""A span node: a run of whole pages of one call's content, resident on the device.

Residency is kept per family. The full-history families (C4 main, C4 index, C128) live and die
together, so a node's existence is their residency for [start, end). The sliding-window family is
separate: SWA entries (and the C4 compressor state that is addressed by SWA page) are resident for
[swa_start, end) or not at all (`swa_start == end`, a tombstone).
"""

from __future__ import annotations


class SpanNode:
    """Tokens [start, end) of content `uid`. Both ends are page multiples.

    `locks` counts direct holders plus locked children, so a node is protected exactly while it is
    above zero. `access` is the tick of the last use of this node or, once its children are gone,
    of anything below it. `older` and `newer` are its neighbours among the nodes that hold a window
    (`cache.windows`), and mean nothing while it holds none. `cuts` are the places inside at which SGLang
    begins another node (where the window begins, and before its last page): a leaf goes from its last cut on.
    `rest` continues this node in SGLang: spans of other contents that were inserted together with it.
    """

    older: SpanNode
    newer: SpanNode

    __slots__ = (
        "access",
        "alive",
        "born",
        "children",
        "cuts",
        "end",
        "locks",
        "newer",
        "older",
        "parent",
        "rest",
        "start",
        "swa_locks",
        "swa_start",
        "uid",
    )

    def __init__(self, uid: int, start: int, end: int, parent: SpanNode | None, tick: int) -> None:
        self.uid = uid
        self.start = start
        self.end = end
        self.parent = parent
        self.children = 0
        self.cuts: tuple[int, ...] = ()
        self.rest: SpanNode | None = None
        self.locks = 0
        self.access = tick
        self.born = tick
        self.swa_start = end
        self.swa_locks = 0
        self.alive = True

    @property
    def tokens(self) -> int:
        return self.end - self.start

    @property
    def swa_tokens(self) -> int:
        return self.end - self.swa_start

    def __repr__(self) -> str:
        return f"<SpanNode {self.uid} [{self.start},{self.end}) swa from {self.swa_start} locks {self.locks}>"
