"""The prefix finder against a search through all earlier prompts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4traces.errors import TraceError
from v4traces.importers.prefix import BlockIds, Match, PrefixFinder

# Few different ids and repeated prefixes, so that edges split, extend and end inside one another.
_PROMPTS = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 12), st.lists(st.integers(0, 2), max_size=6)), max_size=25
)


def _common(one: list[int], two: list[int]) -> int:
    for at, (a, b) in enumerate(zip(one, two, strict=False)):
        if a != b:
            return at
    return min(len(one), len(two))


@given(_PROMPTS)
def test_finds_the_earliest_call_with_the_longest_shared_prefix(recipe):
    finder, prompts = PrefixFinder(), []
    for source, keep, tail in recipe:
        base = prompts[source % len(prompts)][:keep] if prompts else []
        prompt = base + tail
        shared = [_common(prompt, earlier) for earlier in prompts]
        longest = max(shared, default=0)
        expected = Match(shared.index(longest), longest) if longest else Match(-1, 0)
        assert finder.add(np.array(prompt, dtype=np.int64), len(prompts)) == expected
        prompts.append(prompt)


def test_a_session_that_only_appends_costs_one_edge():
    finder = PrefixFinder()
    ids = np.arange(1000, dtype=np.int64)
    for call in range(1, 100):
        finder.add(ids[: 10 * call], call)
    (edge,) = finder._roots.values()
    assert not edge.children
    assert edge.stop == 990


def test_wide_ids_with_equal_low_halves_stay_different():
    ids = BlockIds()
    low = 0x1234_5678
    one, two = (1 << 63) + low, (3 << 62) + low
    blocks = ids.blocks([low, one, two, one, -low])
    assert len(set(blocks.tolist())) == 4
    assert blocks[1] == blocks[3]


def test_numbers_mean_the_same_beside_wide_ids_and_alone():
    ids = BlockIds()
    alone = ids.blocks([5, 6])
    beside = ids.blocks([5, 1 << 64, 6])
    assert beside[[0, 2]].tolist() == alone.tolist()


def test_a_string_is_not_the_number_it_spells():
    ids = BlockIds()
    assert ids.blocks(["7"])[0] != ids.blocks([7])[0]
    assert ids.blocks(["7"])[0] == ids.blocks(["7"])[0]


@pytest.mark.parametrize("bad", [1.5, None, [1]])
def test_an_id_that_is_neither_number_nor_string_is_refused(bad):
    with pytest.raises(TraceError, match="whole numbers or strings"):
        BlockIds().blocks([1, bad])
