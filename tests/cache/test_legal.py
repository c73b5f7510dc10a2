"""Which hits may be used: window veto, exact recompute, bounded replay."""

from __future__ import annotations

import pytest

from v4sim.cache.legal import HitPolicy
from v4sim.cache.node import SpanNode


def chain(*spans: tuple[int, int, int]) -> SpanNode:
    """Nodes (start, end, window from) one under the other; returns the last."""
    node: SpanNode | None = None
    for start, end, swa_start in spans:
        node = SpanNode(0, start, end, node, 0)
        node.swa_start = swa_start
    assert node is not None
    return node


def policy(rule: str, layers: int = 43) -> HitPolicy:
    return HitPolicy(rule, page_tokens=256, window_tokens=128, num_layers=layers)


@pytest.mark.parametrize(("layers", "tokens"), [(43, 5632), (40, 5376), (61, 7936)])
def test_exact_recompute_grows_by_one_window_per_layer(layers: int, tokens: int) -> None:
    """sglang#31713: W_r = align(align(W, page) + (N − 1)·W, page)."""
    assert policy("strict", layers).recompute_tokens == tokens


def test_a_boundary_with_its_window_is_legal_and_costs_nothing() -> None:
    tail = chain((0, 512, 512), (512, 1024, 768))
    found = policy("strict").legal_hit(tail, 1024)
    assert (found.tokens, found.replay_tokens, found.lost_tokens) == (1024, 0, 0)


def test_a_tombstone_sends_the_hit_back_to_the_last_legal_boundary() -> None:
    tail = chain((0, 512, 256), (512, 1024, 1024), (1024, 2048, 2048))
    hit = policy("strict").legal_hit(tail, 2048)
    assert (hit.tokens, hit.lost_tokens) == (512, 1536)


def test_inside_a_node_the_window_before_the_boundary_counts_not_the_one_at_the_end() -> None:
    tail = chain((0, 2048, 1792))
    assert policy("strict").legal_hit(tail, 2048).tokens == 2048
    assert policy("strict").legal_hit(tail, 1024).tokens == 0


@pytest.mark.parametrize(("hit", "replayed"), [(2 * 5632 - 256, None), (2 * 5632, 5632)])
def test_recompute_needs_a_hit_of_twice_the_window(hit: int, replayed: int | None) -> None:
    tail = chain((0, hit, hit))
    found = policy("recompute_window").legal_hit(tail, hit)
    if replayed is None:
        assert (found.tokens, found.lost_tokens) == (0, hit)
    else:
        assert (found.tokens, found.replay_tokens) == (hit, replayed)


@pytest.mark.parametrize(("length", "tokens", "replayed"), [(128, 0, 0), (129, 129, 128)])
def test_bounded_replay_does_not_adopt_hits_within_the_window(
    length: int, tokens: int, replayed: int
) -> None:
    """vllm#56227: H = 128 is cold, H = 129 replays 128 tokens."""
    found = policy("bounded_replay").legal_hit(chain((0, 256, 256)), length)
    assert (found.tokens, found.replay_tokens) == (tokens, replayed)
