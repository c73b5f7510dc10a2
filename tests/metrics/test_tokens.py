"""Tokens by tier, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.metrics.tokens import hits, tokens
from v4traces import CallRow


@pytest.fixture
def three(make_calls, served):
    """A call with hits on every tier, a cold one, and one that was never admitted."""
    return make_calls(
        [
            served(0, 0, 1, 2, 3)
            | {
                "prompt_tokens": 1000,
                "hit_tokens": 512,
                "hit_host_tokens": 256,
                "hit_storage_tokens": 100,
                "computed_tokens": 132,
                "recomputed_tokens": 50,
                "bound_tokens": 900,
                "output_tokens": 7,
            },
            served(1, 0, 1, 2, 3) | {"prompt_tokens": 500, "computed_tokens": 500, "output_tokens": 5},
            {
                "row": 2,
                "sent_ns": 0,
                "prompt_tokens": 9999,
                "computed_tokens": -1,
                "hit_tokens": -1,
                "done": "queued",
            },
        ]
    )


def test_tiers_sum_to_the_prompt_and_calls_never_admitted_are_out(three):
    found = tokens(three, np.ones(3, dtype=bool))
    assert found == {
        "prompt": 1500,
        "device": 512,
        "host": 256,
        "storage": 100,
        "computed": 632,
        "recomputed": 50,
        "output": 12,
    }
    assert found["device"] + found["host"] + found["storage"] + found["computed"] == found["prompt"]


@pytest.fixture(scope="module")
def table(make_trace):
    """A root, and two calls that extend it."""
    root = CallRow(session_id="a", turn=0, prompt_tokens=99, output_tokens=1)
    extending = [
        CallRow(
            session_id="a",
            turn=turn,
            parent_session="a",
            parent_turn=0,
            shared_tokens=50,
            prompt_tokens=100,
            output_tokens=1,
        )
        for turn in (1, 2)
    ]
    return make_trace([root, *extending])


def test_ratios(three, table):
    found = hits(three, table, np.ones(3, dtype=bool), None)
    assert found["token_ratio"] == 868 / 1500
    assert found["bound_ratio"] == 900 / 1500
    assert found["lost_tokens"] == 32


def test_nothing_admitted_has_no_ratio(three, table):
    found = hits(three, table, np.array([False, False, True]), None)
    assert "token_ratio" not in found
    assert found["hit_tokens"] == 0


def test_a_hit_beyond_the_bound_does_not_hide_a_loss(make_calls, served, table):
    calls = make_calls(
        [
            served(0, 0, 1, 2, 3, prompt_tokens=100, hit_tokens=90, bound_tokens=50),
            served(1, 0, 1, 2, 3, prompt_tokens=100, hit_tokens=10, bound_tokens=50),
        ]
    )
    assert hits(calls, table, np.ones(2, dtype=bool), None)["lost_tokens"] == 40


def test_losses_of_calls_that_went_to_another_rank(make_calls, served, table):
    calls = make_calls(
        [
            served(0, 0, 1, 2, 3, rank=1, prompt_tokens=99, bound_tokens=7),
            served(1, 0, 1, 2, 3, rank=1, prompt_tokens=100, bound_tokens=50, hit_tokens=20),
            served(2, 0, 1, 2, 3, rank=0, prompt_tokens=100, bound_tokens=50),
            served(1, 0, 1, 2, 3, rank=0, prompt_tokens=100, bound_tokens=50, instance=1),
        ]
    )
    found = hits(calls, table, np.ones(4, dtype=bool), None)
    assert (found["lost_tokens"], found["lost_moved_tokens"]) == (7 + 30 + 50 + 50, 50)


tiers = st.tuples(*[st.integers(0, 2**20)] * 4)


@given(st.lists(st.tuples(tiers, st.booleans()), min_size=1, max_size=20))
def test_whatever_is_served_the_tiers_sum(make_calls, served, made):
    names = ("hit_tokens", "hit_host_tokens", "hit_storage_tokens", "computed_tokens")
    calls = make_calls(
        [
            (served(0, 0, 1, 2, 3) if admitted else {"done": "queued"})
            | dict(zip(names, split, strict=True))
            | {"prompt_tokens": sum(split)}
            for split, admitted in made
        ]
    )
    found = tokens(calls, np.ones(len(made), dtype=bool))
    assert found["device"] + found["host"] + found["storage"] + found["computed"] == found["prompt"]
