"""Windows as vLLM keeps them under a retention interval of 0: blocks of their own, at a few boundaries.

Each prompt leaves its window and compressor state once, at the last page boundary below its end, and once
more where it found history without a window. A mark says that they are there. It belongs to a content,
whichever call's copy of the history a hit follows.

Left out: the room that marks take. They are blocks like any other, and in a full pool leave like any other;
here they are forgotten with nothing, and stay as long as the history below them.
"""

from __future__ import annotations

from bisect import bisect_right, insort

from v4sim.prefix import NO_PARENT, PrefixIndex


class WindowMarks:
    """Lengths of content at which a window is resident."""

    def __init__(self, prefixes: PrefixIndex) -> None:
        self._prefixes = prefixes
        self._marks: dict[int, list[int]] = {}  # by the content that owns the token below, ascending

    def leave(self, uid: int, tokens: int) -> None:
        """The window before `tokens` of this content is resident from now on."""
        prefixes = self._prefixes
        while prefixes.start(uid) >= tokens:
            uid = prefixes.parent(uid)
        marks = self._marks.setdefault(uid, [])
        if tokens not in marks:
            insort(marks, tokens)

    def latest(self, uid: int, limit_tokens: int) -> int:
        """The longest length of this content with a window, at most `limit_tokens`; 0 if there is none."""
        prefixes, limit = self._prefixes, limit_tokens
        while uid != NO_PARENT:
            marks = self._marks.get(uid, ())
            place = bisect_right(marks, limit)
            if place:
                return marks[place - 1]
            limit = min(limit, prefixes.start(uid))
            uid = prefixes.parent(uid)
        return 0
