"""Legal ends of a prefix hit: rounding laws, and the arithmetic of public reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.model import ModelSpec, spec
from v4sim.model.layout import VllmLayout
from v4sim.model.layout.boundary import (
    compressed_block_tokens,
    decoder_tokens,
    hit_unit,
    is_legal,
    longest_hit,
    recompute_window,
    replayed_tokens,
    uses_recompute,
)


@given(st.integers(0, 2**20), st.sampled_from([128, 256, 4096]), st.booleans())
def test_a_hit_is_whole_pages_and_leaves_a_token_to_compute(prompt: int, unit: int, bigram: bool) -> None:
    hit = longest_hit(prompt, unit, bigram)
    assert hit % unit == 0
    assert 0 <= hit <= max(prompt - 1 - bigram, 0)
    assert hit + unit > prompt - 1 - bigram


@given(st.integers(0, 2**20))
def test_hits_end_where_every_family_is_whole(prompt: int) -> None:
    for name in ("v4-flash", "v4-pro", "v4.1-flash"):
        assert is_legal(spec(name), longest_hit(prompt, 256))


def test_inside_a_page_nothing_is_legal(flash: ModelSpec) -> None:
    assert [t for t in range(1025) if is_legal(flash, t)] == [0, 256, 512, 768, 1024]


def test_bigram_keys_end_a_token_earlier() -> None:
    assert (longest_hit(513, 256), longest_hit(513, 256, bigram_keys=True)) == (512, 256)


@pytest.mark.parametrize(("name", "tokens"), [("v4-flash", 5_632), ("v4.1-flash", 5_376), ("v4-pro", 7_936)])
def test_recompute_window(name: str, tokens: int) -> None:
    """SGLang 31713: align(align(W, page) + (N - 1) W, page) for N = 43, 40, 61."""
    model = spec(name)
    assert recompute_window(model) == tokens
    assert uses_recompute(model, 2 * tokens)
    assert not uses_recompute(model, 2 * tokens - 1)


def test_bounded_replay(v41: ModelSpec) -> None:
    """vLLM 56227: a hit no longer than the window is not adopted, a longer one replays one window."""
    assert replayed_tokens(v41, 128) == 0
    assert replayed_tokens(v41, 129) == 128
    assert (decoder_tokens(v41, 3), decoder_tokens(v41, 8192)) == (3, 128)


def test_lcm_of_five_groups() -> None:
    """vllm-ascend 16270: groups of 128, 4096, 32, 2 and 8 make prompts under 4,096 tokens miss."""
    unit = hit_unit([128, 4096, 32, 2, 8])
    assert unit == 4096
    assert longest_hit(2048 + 1, unit) == 0
    assert longest_hit(4096 + 1, unit) == 4096


@pytest.mark.parametrize(("block", "plain", "speculative"), [(128, 16_384, 32_768), (32, 4_096, 8_192)])
def test_shortest_hit_of_a_block_of_entries(block: int, plain: int, speculative: int) -> None:
    """vllm-ascend 10710: a block of b entries at ratio 128, doubled with speculation."""
    tokens = compressed_block_tokens(block, 128)
    assert hit_unit([tokens]) == plain
    assert hit_unit([tokens], speculative_factor=2) == speculative


def test_vllm_groups_of_v4_agree_every_256_tokens(any_model: ModelSpec) -> None:
    assert VllmLayout(any_model, any_model.index_dtypes[0]).hit_unit_tokens == 256
