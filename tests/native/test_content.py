"""Hashes and names from prefix structure are equal exactly where tokens are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.engine.native.content import ContentHasher, ContentTokens
from v4sim.prefix import PrefixIndex


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[int, int, int, int, int]]:
    """Calls that extend earlier ones: (parent, shared prompt, shared output, prompt, output)."""
    calls: list[tuple[int, int, int, int, int]] = []
    for number in range(draw(st.integers(1, 7))):
        parent = draw(st.integers(-1, number - 1))
        shared = back = 0
        if parent >= 0:
            shared = draw(st.integers(0, calls[parent][3]))
            if shared == calls[parent][3]:
                back = draw(st.integers(0, calls[parent][4]))
        calls.append(
            (parent, shared, back, shared + back + draw(st.integers(1, 40)), draw(st.integers(1, 20)))
        )
    return calls


def tokens(calls: list[tuple[int, int, int, int, int]]) -> list[list[int]]:
    """Contents by call: what is not shared is unlike anything else."""
    found: list[list[int]] = []
    fresh = iter(range(1 << 20))
    for parent, shared, back, prompt, output in calls:
        begin = found[parent][: shared + back] if parent >= 0 else []
        found.append(begin + [next(fresh) for _ in range(prompt + output - len(begin))])
    return found


def index(calls: list[tuple[int, int, int, int, int]]) -> PrefixIndex:
    columns = np.array(calls, dtype=np.int64).T
    table: Any = SimpleNamespace(
        n=len(calls),
        group_names=[],
        parent=columns[0],
        shared_tokens=columns[1],
        shared_output_tokens=columns[2],
        group=np.full(len(calls), -1),
        group_tokens=np.zeros(len(calls), dtype=np.int64),
    )
    return PrefixIndex(table, 1)


@given(trees(), st.sampled_from([1, 4, 16]), st.sampled_from([0, 1, 3]))
def test_two_hashes_are_equal_exactly_if_all_they_cover_is(
    calls: list[tuple[int, int, int, int, int]], block: int, ahead: int
) -> None:
    contents, prefixes = tokens(calls), index(calls)
    covers: dict[bytes, tuple[int, ...]] = {}
    names: dict[tuple[int, ...], bytes] = {}
    for number, content in enumerate(contents):
        request = SimpleNamespace(block_hashes=[], num_tokens=len(content))
        hashes = ContentHasher(prefixes, number, block, ahead)(request)
        assert len(hashes) == max(0, len(content) - ahead) // block
        for place, name in enumerate(hashes):
            covered = (place, *content[: (place + 1) * block + ahead])
            assert covers.setdefault(name, covered) == covered
            assert names.setdefault(covered, name) == name


@given(trees(), st.integers(0, 50))
def test_two_names_of_tokens_are_equal_exactly_if_the_tokens_are(
    calls: list[tuple[int, int, int, int, int]], first: int
) -> None:
    contents, prefixes = tokens(calls), index(calls)
    names: dict[int, int] = {}
    found: dict[int, int] = {}
    for number, content in enumerate(contents):
        given = ContentTokens(prefixes, number).names(first, len(content))
        assert len(given) == max(0, len(content) - first)
        for name, token in zip(given, content[first:], strict=True):
            assert names.setdefault(token, name) == name
            assert found.setdefault(name, token) == token


@pytest.mark.parametrize("first", [0, 3, 90])
def test_hashes_one_by_one_are_hashes_at_once(first: int) -> None:
    calls = [(-1, 0, 0, 300, 100), (0, 300, 57, 500, 10)]
    hasher = ContentHasher(index(calls), 1, 4, 1)
    whole = hasher.hashes(0, 120)
    assert whole[first:] == hasher.hashes(first, 120)
    assert whole == [name for number in range(120) for name in hasher.hashes(number, number + 1)]
