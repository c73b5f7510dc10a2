"""Contents of a call as engines know them, from the prefix structure of the trace.

A trace has no tokens, but it says who owns which: two calls have the same tokens up to a position exactly
if the same span owns that position in both. SGLang compares tokens: (owner, position) is one. vLLM
compares chained hashes, where the hash of a block names all tokens up to its end: (owner, number of the
block) is one without collisions.

With a draft head that reads ahead, vLLM lets a hash also cover the next tokens; so does `ahead_tokens`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Any

import numpy as np

from v4sim.prefix import PrefixIndex

_ENDLESS = 1 << 62
_BYTES = 16
_FEW = 8  # below, arrays cost more than they save
_POSITION_BITS = 32


class ContentTokens:
    """Names of a call's tokens, prompt and output: whole numbers, alike where the trace says so.

    `prefixes` must be exact to the token (an index with pages of one token).
    """

    def __init__(self, prefixes: PrefixIndex, uid: int) -> None:
        self._segments = prefixes.segments(uid, 0, _ENDLESS)

    def names(self, first: int, end: int) -> array[int]:
        """Of the tokens first, …, end - 1."""
        found: array[int] = array("q")
        for owner, owned_end in self._segments:
            upto = min(owned_end, end)
            if first < upto:
                base = owner << _POSITION_BITS
                if upto - first < _FEW:
                    found.extend(range(base + first, base + upto))
                else:
                    found.frombytes(np.arange(base + first, base + upto, dtype=np.int64).tobytes())
                first = upto
        return found


class ContentHasher:
    """What a vLLM request asks for the hashes of its new whole blocks, as its tokens become known.

    `prefixes` must be exact to the token (an index with pages of one token).
    """

    def __init__(self, prefixes: PrefixIndex, uid: int, block_tokens: int, ahead_tokens: int) -> None:
        self._block = block_tokens
        self._ahead = ahead_tokens
        segments = prefixes.segments(uid, 0, _ENDLESS)
        self._owners = [owner for owner, _ in segments]
        self._ends = [end for _, end in segments[:-1]]

    def __call__(self, request: Any) -> list[bytes]:
        first = len(request.block_hashes)
        return self.hashes(first, max(first, (request.num_tokens - self._ahead) // self._block))

    def hashes(self, first: int, end: int) -> list[bytes]:
        """Of the blocks first, …, end - 1."""
        if end - first < _FEW:
            return [self._hash(number) for number in range(first, end)]
        numbers = np.arange(first, end)
        owner = np.searchsorted(self._ends, (numbers + 1) * self._block + self._ahead - 1, side="right")
        pairs = np.empty((end - first, 2), dtype=">u8")
        pairs[:, 0] = np.array(self._owners)[owner]
        pairs[:, 1] = numbers
        packed = pairs.tobytes()
        return [packed[i : i + _BYTES] for i in range(0, len(packed), _BYTES)]

    def _hash(self, number: int) -> bytes:
        last_token = (number + 1) * self._block + self._ahead - 1
        owner = self._owners[bisect_right(self._ends, last_token)]
        return (owner << 64 | number).to_bytes(_BYTES, "big")
