"""Random inputs that are valid in their formats and fast to make at the sizes of a million tokens.

A cache is a few encoded pages repeated over all of its pages: every page has an address of its own, which
is what the memory system sees, and its content is real. Pages of a sequence are scattered over the pool.
Nothing is zero: zeros are fast on some hardware.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from v4kernels.layouts import EntryFormat

_DISTINCT_PAGES, _DISTINCT_ENTRIES = 64, 4096  # encoding more takes longer than timing them


def filled_cache(fmt: EntryFormat, pages: int, page_entries: int, device: str) -> Tensor:
    """uint8 [pages, page_bytes] of encoded normal values."""
    import torch

    from v4kernels import layouts

    distinct = min(_DISTINCT_PAGES, max(_DISTINCT_ENTRIES // page_entries, 1), pages)
    generator = torch.Generator().manual_seed(pages)
    small = layouts.new_cache(fmt, distinct, page_entries)
    small.fill_(1)  # padding is never read; defined all the same
    slots = torch.arange(distinct * page_entries)
    values = torch.randn(len(slots), fmt.dim, generator=generator)
    layouts.write(
        fmt, small, page_entries, slots, values * (0.5 + torch.rand(len(slots), 1, generator=generator))
    )
    if pages == distinct:
        return small.to(device)
    repeat = torch.arange(pages, device=device) % distinct
    return small.to(device).index_select(0, repeat)


def scattered_tables(
    lengths: list[int], page_entries: int, copies: int, device: str
) -> tuple[list[Any], int]:
    """Page tables int32 [sequences, widest] for each copy, over one pool; and the pool's pages."""
    import torch

    each = [max(1, math.ceil(n / page_entries)) for n in lengths]
    total = sum(each) * copies
    order = torch.randperm(total, generator=torch.Generator().manual_seed(total)).to(torch.int32).to(device)
    tables, at = [], 0
    for _ in range(copies):
        table = torch.zeros(len(each), max(each), dtype=torch.int32, device=device)
        for row, pages in enumerate(each):
            table[row, :pages] = order[at : at + pages]
            at += pages
        tables.append(table)
    return tables, total


def sample(count: int, of: int) -> list[int]:
    """At most `count` numbers below `of`: both ends and between."""
    if of <= count:
        return list(range(of))
    return sorted({round(i * (of - 1) / (count - 1)) for i in range(count)})


def worst(name: str, deviation: Any) -> str | None:
    """None if a deviation is within its derived bound."""
    if deviation.ok:
        return None
    return (
        f"{name} differs from its reference by {deviation.worst_ratio:.3g} times the error bound "
        f"(largest difference {deviation.max_abs:.3g} at {deviation.at})"
    )
