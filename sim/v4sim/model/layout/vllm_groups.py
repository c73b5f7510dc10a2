"""How vLLM packs the layers of a model into cache groups that take blocks from one pool.

A bucket is what could be one group: layers whose blocks hold the same number of tokens. Each layer has a
page in the block; pages differ in size, blocks of the pool do not. So a bucket of many layers is split
into several groups, each with blocks of its own, such that few places stay empty (`even_share`).

- `pack_tuples` (until 0.26): a block has places by page size, as many of each size as the group with most
  of them. Window pages are padded to the next page size of the history.
- `pack_widest` (since 0.27): groups share a block from its first byte on, so it is as wide as the widest
  of them. Windows are split against the largest bucket that mixes page sizes evenly; where there is none
  (V4.1), until their groups are no wider than the history.

Source: vLLM 0.25.0, `v1/core/kv_cache_utils.py`, and 0.33.0, `kv_cache_planning.py`, restated. 0.26 packs as
0.25 does, 0.28 to 0.31 as 0.27 and 0.33. Their figures: `tests/oracle/recorded/vllm_layout.json.gz`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

HISTORY = -1  # a window that never ends
RING = 0  # one block per request, which no prefix shares


@dataclass(frozen=True, slots=True)
class Bucket:
    """Layers with blocks of `block_tokens` that keep `window` tokens; `pages` lists (bytes, layers)."""

    name: str
    window: int
    block_tokens: int
    pages: tuple[tuple[int, int], ...]
    alignment: int = 1  # of the whole block, in bytes

    def by_size(self) -> dict[int, int]:
        """Layers by the bytes of their page."""
        found: Counter[int] = Counter()
        for size, layers in self.pages:
            found[size] += layers
        return dict(found)

    def most_layers(self) -> int:
        return max(self.by_size().values())


@dataclass(frozen=True, slots=True)
class Packed:
    """A bucket in `groups` groups; `layer_bytes`: pages of all its layers, padded as the rule asks."""

    bucket: Bucket
    groups: int
    layer_bytes: int

    def blocks(self, tokens: int, step_tokens: int) -> int:
        """Most blocks of one group that a request of `tokens` holds, `step_tokens` of them under way."""
        if self.bucket.window == RING:
            return 1
        held = tokens
        if self.bucket.window != HISTORY:
            held = min(self.bucket.window - 1 + step_tokens, tokens) + self.bucket.block_tokens
        return -(-held // self.bucket.block_tokens)

    def mean_blocks(self, step_tokens: int) -> float:
        """`blocks` of a long request, on average over where in a block its window begins."""
        if self.bucket.window == RING:
            return 1.0
        return 1 + (self.bucket.window + step_tokens - 2) / self.bucket.block_tokens

    @property
    def kept_blocks(self) -> int:
        """Blocks of one group that a prefix hit at one boundary needs."""
        return 0 if self.bucket.window == RING else -(-(self.bucket.window - 1) // self.bucket.block_tokens)


@dataclass(frozen=True, slots=True)
class Packing:
    """Bytes of a block of the pool, and what became of each bucket; the first is the history."""

    block_bytes: int
    buckets: tuple[Packed, ...]


def even_share(layers: Sequence[int], least: int) -> int:
    """Layers per group, `least` or more, that leave the fewest places empty; the larger of equal ones."""
    return min(
        range(least, max(layers) + 1),
        key=lambda share: (sum(-count % share for count in layers), -share),
    )


def _width(pages: dict[int, int], groups: int) -> int:
    """Bytes of the widest of so many groups."""
    return sum(size * -(-layers // groups) for size, layers in pages.items())


def pack_tuples(buckets: Sequence[Bucket]) -> Packing:
    """Places by page size."""
    history = buckets[0]
    share = even_share([bucket.most_layers() for bucket in buckets], history.most_layers())
    places = history.by_size()
    packed = [Packed(history, 1, _width(places, 1))]
    for bucket in buckets[1:]:
        padded: Counter[int] = Counter()
        for size, layers in bucket.pages:
            padded[min(page for page in places if page >= size)] += layers
        groups = -(-max(padded.values()) // share)
        for size, layers in padded.items():
            places[size] = max(places[size], -(-layers // groups))
        packed.append(Packed(bucket, groups, _width(padded, 1)))
    return Packing(_width(places, 1), tuple(packed))


def pack_widest(buckets: Sequence[Bucket]) -> Packing:
    """Groups over one another."""
    history = buckets[0]
    even = [bucket for bucket in buckets if len(set(bucket.by_size().values())) == 1]
    mixed = [bucket.most_layers() for bucket in even if len(bucket.by_size()) > 1]
    share = even_share([bucket.most_layers() for bucket in even], max(mixed)) if mixed else 0
    packed, widest = [], 0
    for bucket in buckets:
        pages, groups = bucket.by_size(), 1
        if share:
            groups = -(-bucket.most_layers() // share) if bucket in even else 1
        elif bucket is not history:
            fitting = max(_width(history.by_size(), 1) // bucket.pages[0][0], 1)
            groups = -(-bucket.most_layers() // fitting)
        widest = max(widest, _width(pages, groups))
        packed.append(Packed(bucket, groups, _width(pages, 1)))
    unit = lcm(*(bucket.alignment for bucket in buckets))
    return Packing(-(-widest // unit) * unit, tuple(packed))
