"""Where a prefix hit may end: page and block boundaries, and what is recomputed behind them.

All numbers are native tokens. Rules: SGLang radix keys (the last token is always computed; one token less
under EAGLE, whose keys are bigrams; whole pages), SGLang's exact window reconstruction (a proposal of 2026),
V4.1's bounded replay, vLLM's hybrid groups (the LCM of their block sizes).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import lcm

from v4sim.model.spec import ModelSpec


def align_up(tokens: int, unit: int) -> int:
    return -(-tokens // unit) * unit


def align_down(tokens: int, unit: int) -> int:
    return tokens // unit * unit


def longest_hit(prompt_tokens: int, unit: int, bigram_keys: bool = False) -> int:
    """The longest prefix of a prompt that a cache may serve: whole units, at least one token computed."""
    usable = prompt_tokens - (2 if bigram_keys else 1)
    return align_down(max(usable, 0), unit)


def hit_unit(block_tokens: Iterable[int], speculative_factor: int = 1) -> int:
    """Unit of hits where several cache groups must agree: the LCM of their blocks in native tokens."""
    return lcm(*block_tokens) * speculative_factor


def compressed_block_tokens(block_entries: int, ratio: int) -> int:
    """Native tokens of a block that holds `block_entries` entries of one ratio."""
    return block_entries * ratio


def is_legal(spec: ModelSpec, tokens: int, page_tokens: int = 256) -> bool:
    """Whether every family of the model has whole pages and whole entries at this length."""
    return tokens >= 0 and tokens % lcm(page_tokens, *spec.ratios) == 0


def recompute_window(spec: ModelSpec, page_tokens: int = 256) -> int:
    """Tokens before a hit's end that rebuild every window exactly: one window for each layer but the first,
    behind one that is aligned to pages."""
    window = spec.sliding_window
    return align_up(align_up(window, page_tokens) + (spec.num_layers - 1) * window, page_tokens)


def uses_recompute(spec: ModelSpec, hit_tokens: int, page_tokens: int = 256) -> bool:
    """Whether a hit without its window is worth rebuilding: it must be twice the recompute window."""
    return hit_tokens >= 2 * recompute_window(spec, page_tokens)


def replayed_tokens(spec: ModelSpec, hit_tokens: int) -> int:
    """Tokens that bounded replay runs again for a hit ending at `hit_tokens`; hits no longer than the window
    are not adopted, which the caller sees as 0 with nothing to keep."""
    return spec.sliding_window if hit_tokens > spec.sliding_window else 0


def decoder_tokens(spec: ModelSpec, new_tokens: int) -> int:
    """New tokens that the decoder layers after the first run under bounded replay: the last window only."""
    return min(new_tokens, spec.sliding_window)
