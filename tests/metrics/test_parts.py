"""Steps, parts and drafts, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from v4sim.metrics.parts import idle_share, speculation_entry, step_entries, whole_run


def test_parts_add_up_over_kinds_and_to_the_steps(make_totals):
    totals = make_totals(
        20.0,
        decode=[{"moe": 1.0, "hca": 0.5}, {"moe": 2.0}],
        prefill=[{"moe": 4.0, "topk": 0.25}],
    )
    found = step_entries(totals)
    assert found["parts_s"]["moe"] == 7.0
    assert found["parts_by_kind_s"]["decode"]["hca"] == 0.5
    assert sum(found["parts_s"].values()) == 7.75
    assert found["step_ms"]["decode"]["count"] == 2
    assert found["step_ms"]["decode"]["mean"] == 1750.0
    assert found["step_ms"]["mixed"] == found["itl_ms"] == {"count": 0}
    assert idle_share(totals, 1) == pytest.approx(1 - 7.75 / 20)
    assert idle_share(totals, 2) == pytest.approx(1 - 7.75 / 40)
    assert idle_share(make_totals(0.0), 1) is None


def test_gaps_in_both_forms(make_totals):
    totals = make_totals(1.0)
    # One burst of 3 tokens after 30 ms: three gaps of 10 ms.
    totals.itl_burst.add(np.array([30_000_000]))
    totals.itl_divided.add(np.array([10_000_000]), np.array([3]))
    found = step_entries(totals)
    assert (found["itl_burst_ms"]["count"], found["itl_burst_ms"]["mean"]) == (1, 30.0)
    assert (found["itl_ms"]["count"], found["itl_ms"]["mean"]) == (3, 10.0)
    assert found["itl_ms"]["p50"] == pytest.approx(10.0, rel=0.01)


def test_the_whole_run_as_the_result_states_it(make_result, make_steps):
    result = make_result(
        steps=make_steps(mixed=[{"moe": 2.0}]), blocks=[(0, 0, 1, "mixed", 7, 90), (0, 1, 2, "decode", 7, 0)]
    )
    totals = whole_run(result)
    assert totals.steps.total_ns == 2_000_000_000
    assert totals.mixed_tokens == (90, 7)
    assert totals.length_ns == result.end_ns


def test_tokens_per_verify_step_and_rates_by_position(make_calls, make_result, served):
    calls = make_calls(
        [
            served(0, 0, 0, 1, 2, output_tokens=11, verify_steps=4),
            served(1, 0, 0, 1, 2, output_tokens=3, verify_steps=2, done="aborted"),
            served(2, 0, 0, 1, 1, output_tokens=1),
        ]
    )
    result = make_result(acceptance={"code": ([10, 4], [4, 1]), "prose": ([0, 0], [0, 0])})
    found = speculation_entry(calls, np.ones(3, dtype=bool), result, "mtp", 2)
    assert found["mean_accepted_length"] == 2.5
    assert found["by_phase"]["code"] == {"offered": [10, 4], "accepted": [4, 1], "rate": [0.4, 0.25]}
    assert found["by_phase"]["prose"]["rate"] == [None, None]


def test_without_drafts_there_is_nothing_to_say(make_calls, make_result, served):
    calls = make_calls([served(0, 0, 0, 1, 2, output_tokens=3, verify_steps=2)])
    found = speculation_entry(calls, np.ones(1, dtype=bool), make_result(), "off", 3)
    assert found == {"kind": "off", "draft_tokens": 0, "by_phase": {}}
