"""Which prefix hits are legal for DeepSeek-V4, and what an illegal one costs.

A hit may be used only at a boundary where every cache family is present at the same length. Full
history is present by construction; the sliding window needs the last `window` tokens before the
boundary. Three rules are deployed (`engine.swa_veto`):

strict            fall back to the nearest shorter boundary that is legal (SGLang default)
recompute_window  keep the hit and recompute the last W_r tokens exactly, if the hit is ≥ 2·W_r
                  (sglang PR 31713: W_r = align(align(W, page) + (layers − 1)·W, page))
bounded_replay    keep the hit and replay only the last `window` tokens, approximately; hits no
                  longer than the window are not adopted (V4.1; vllm PR 56227)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from v4sim.cache.node import SpanNode

VETO_RULES = ("strict", "recompute_window", "bounded_replay")


@dataclass(slots=True, init=False)
class Hit:
    """A usable prefix: `tokens` of history are reused, of which the last `replay_tokens` are computed again.

    `lost_tokens` is what the full-history families would have allowed beyond `tokens`. `__init__` is written
    out because a generated one is interpreted in compiled code.
    """

    node: SpanNode | None
    tokens: int
    replay_tokens: int
    lost_tokens: int

    def __init__(self, node: SpanNode | None, tokens: int, replay_tokens: int, lost_tokens: int) -> None:
        self.node, self.tokens = node, tokens
        self.replay_tokens, self.lost_tokens = replay_tokens, lost_tokens


NO_HIT: Final = Hit(None, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class HitPolicy:
    """The veto rule with its constants. `page_tokens` ≥ `window_tokens` is assumed (256 ≥ 128)."""

    rule: str
    page_tokens: int
    window_tokens: int
    num_layers: int

    @property
    def recompute_tokens(self) -> int:
        """W_r of exact reconstruction: the window's dependency grows by one window per layer."""
        page, window = self.page_tokens, self.window_tokens
        first = -(-window // page) * page
        return -(-(first + (self.num_layers - 1) * window) // page) * page

    def window_present(self, node: SpanNode, length: int) -> bool:
        """Is the sliding window before `length` (inside `node`, above its start) resident?"""
        if self.window_tokens == 0:
            return True
        return node.swa_start <= length - min(self.window_tokens, length - node.start)

    def legal_hit(self, node: SpanNode | None, length: int) -> Hit:
        """The hit that may be used, given that the history is resident up to `length` in `node`.

        Modifies nothing. `node` must contain `length` in (start, end].
        """
        if node is None or length <= 0:
            return NO_HIT
        if self.window_present(node, length):
            return Hit(node, length, 0, 0)
        if self.rule == "bounded_replay" and length > self.window_tokens:
            return Hit(node, length, self.window_tokens, 0)
        if self.rule == "recompute_window" and length >= 2 * self.recompute_tokens:
            return Hit(node, length, self.recompute_tokens, 0)
        above = node.parent
        while above is not None and not self.window_present(above, above.end):
            above = above.parent
        if above is None:
            return Hit(None, 0, 0, length)
        return Hit(above, above.end, 0, length - above.end)
