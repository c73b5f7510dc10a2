"""Warnings: what misleads without breaking a law. Some stand for public reports of such results."""

from __future__ import annotations

import pytest

from v4traces import CallRow, TraceMetadata, check_trace


def _laws(table):
    return [finding.law for finding in check_trace(table)]


def _line(ids, time):
    return {"timestamp": time, "input_length": 512 * len(ids), "output_length": 9, "hash_ids": ids}


def test_a_cold_trace_that_repeats_its_prompts_is_named(run_import, json_file):
    """vllm#52884: one seed sends the same prompts again, and a "cold" benchmark measures a warm cache."""
    prompts = [[n * 100 + i for i in range(8)] for n in range(3)]
    lines = [_line(ids, time) for time, ids in enumerate(prompts + prompts[:2])]
    table = run_import("mooncake", json_file(*lines))
    (finding,) = check_trace(table)
    assert finding.law == "cold_prompts_repeat"
    assert finding.severity == "warning"
    assert (finding.row, finding.count) == (3, 2)
    assert "2 of 5 sessions" in finding.message
    assert "40.0%" in finding.message


def test_prompts_that_share_a_prefix_only_are_no_repetition(run_import, json_file):
    lines = [_line([1, 2, 3, n], time) for time, n in enumerate(range(10, 15))]
    assert _laws(run_import("mooncake", json_file(*lines))) == []


def test_the_first_diverging_block_and_the_loss_are_shown(run_import, json_file, weka):
    """kimi-code#2532: a time stamp in the system prompt leaves 2,432 tokens cached instead of 20,608."""
    calls = [
        weka.call(20 * n, weka.ids((38, "s"), (1, f"time{n}"), (283 + 2 * n, "h")), think_time=5.0)
        for n in range(5)
    ]
    assert calls[0]["in"] == 20_608
    table = run_import("weka", json_file(weka.session(calls)))
    assert table.shared_tokens.tolist() == [0, *[2_432] * 4]
    (finding,) = check_trace(table)
    assert finding.law == "prefixes_break_at_one_place"
    assert (finding.row, finding.count) == (1, 4)
    assert "block 38 (token 2432)" in finding.message
    assert f"loses {20_608 - 2_432} tokens" in finding.message
    assert f"all of them together {sum(20_608 + 128 * n - 2_432 for n in range(4))}" in finding.message


def test_sessions_that_extend_themselves_break_nowhere(run_import, json_file, weka):
    calls = [weka.call(20 * n, weka.ids((100 + 9 * n, "s")), think_time=5.0) for n in range(20)]
    assert _laws(run_import("weka", json_file(weka.session(calls)))) == []


def test_breaks_at_different_places_are_ordinary(run_import, json_file, weka):
    calls = [
        weka.call(20 * n, weka.ids((50 + 30 * n, "s"), (40, f"tail{n}")), think_time=5.0) for n in range(6)
    ]
    assert _laws(run_import("weka", json_file(weka.session(calls)))) == []


def test_pauses_of_hours_are_named_and_not_capped(write):
    rows = [
        CallRow(session_id="a", turn=n, prompt_tokens=10, output_tokens=1, delay_s=delay)
        for n, delay in enumerate((1.0, 5000.0, 491_921.0, 99.0))
    ]
    table = write(rows)
    (finding,) = check_trace(table)
    assert finding.law == "delays_of_hours"
    assert (finding.row, finding.count) == (2, 2)
    assert "491,921" in finding.message
    assert table.delay_s.max() == 491_921.0


def test_count_derived_prefixes_are_not_taken_for_truth(write):
    row = CallRow(session_id="a", turn=0, prompt_tokens=10, output_tokens=1)
    assert _laws(write([row], TraceMetadata("x", "count_derived"))) == ["prefixes_are_guessed"]
    assert _laws(write([row], TraceMetadata("x", "hash_exact"))) == []


@pytest.mark.parametrize("law", ["shared_needs_parent"])
def test_broken_laws_come_alone(raw_file, law):
    from v4traces.read import load

    table, _ = load(raw_file({"shared_tokens": [5, 0], "delay_s": [9e9, 0.0]}))
    assert [(finding.severity, finding.law) for finding in check_trace(table)] == [("error", law)]
