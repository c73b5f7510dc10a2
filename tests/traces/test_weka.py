"""WEKA sessions: what each field means, and the pitfalls of real files."""

from __future__ import annotations

import numpy as np
import pytest

from v4traces import TRIGGERS, TraceError


def _after(table, row):
    return table.after_rows[table.after_offsets[row] : table.after_offsets[row + 1]].tolist()


def _triggers(table):
    return [TRIGGERS[code] for code in table.trigger]


def test_an_appending_session_shares_the_whole_previous_prompt_and_its_output(run_import, json_file, weka):
    # The prompt grows by 3 blocks; its parent ends 20 tokens into a block that no hash covers.
    first = weka.call(0, weka.ids((4, "a")), extra=20, out=30)
    second = weka.call(9, weka.ids((4, "a"), (3, "b")), extra=5)
    table = run_import("weka", json_file(weka.session([first, second])))
    assert table.parent.tolist() == [-1, 0]
    assert table.shared_tokens.tolist() == [0, 4 * 64 + 20]
    assert table.shared_output_tokens.tolist() == [0, 30]
    assert table.metadata.prefix_error_tokens == 63


def test_output_that_cannot_fit_is_not_shared(run_import, json_file, weka):
    calls = [weka.call(0, weka.ids((4, "a")), out=500), weka.call(9, weka.ids((4, "a"), (1, "b")), extra=6)]
    table = run_import("weka", json_file(weka.session(calls)))
    assert table.shared_output_tokens.tolist() == [0, 64 + 6]


def test_a_prompt_that_diverges_shares_whole_blocks_only(run_import, json_file, weka):
    calls = [weka.call(0, weka.ids((6, "a")), extra=9), weka.call(9, weka.ids((5, "a"), (4, "b")))]
    table = run_import("weka", json_file(weka.session(calls)))
    assert table.shared_tokens.tolist() == [0, 5 * 64]
    assert table.shared_output_tokens.tolist() == [0, 0]


def test_a_shorter_prompt_never_claims_its_parents_last_block(run_import, json_file, weka):
    calls = [weka.call(0, weka.ids((4, "a")), extra=40), weka.call(9, weka.ids((4, "a")), extra=10)]
    table = run_import("weka", json_file(weka.session(calls)))
    assert table.shared_tokens.tolist() == [0, 4 * 64]


def test_a_rollback_forks_from_the_earliest_call_with_the_longest_prefix(run_import, json_file, weka):
    calls = [
        weka.call(0, weka.ids((4, "a"))),
        weka.call(9, weka.ids((4, "a"), (4, "b"))),
        weka.call(19, weka.ids((4, "a"), (4, "b"), (2, "c"))),
        weka.call(29, weka.ids((4, "a"), (4, "b"), (2, "d"))),
        weka.call(39, weka.ids((4, "a"), (1, "e"))),
    ]
    table = run_import("weka", json_file(weka.session(calls)))
    assert table.parent.tolist() == [-1, 0, 1, 1, 0]
    assert (table.shared_tokens // 64).tolist() == [0, 4, 8, 8, 4]


def test_hash_ids_are_local_to_a_file(run_import, json_file, weka):
    one = json_file(weka.session([weka.call(0, [1, 2, 3])], tool_tokens=11), name="1.json")
    two = json_file(weka.session([weka.call(0, [1, 2, 3], out=9)], tool_tokens=12), name="2.json")
    table = run_import("weka", one, two)
    assert table.parent.tolist() == [-1, -1]


def test_roots_with_equal_tool_and_system_lengths_form_a_group(run_import, json_file, weka):
    sources = [
        json_file(weka.session([weka.call(0, weka.ids((4, "a")), out=n)], **sizes), name=f"{n}.json")
        for n, sizes in enumerate(
            ({}, {}, {"system_tokens": 51}, {"tool_tokens": 0, "system_tokens": 0}, {"tool_tokens": 10_000}),
            1,
        )
    ]
    table = run_import("weka", *sources)
    assert table.group.tolist() == [0, 0, 1, -1, 2]
    assert table.group_tokens.tolist() == [150, 150, 151, 0, 256]
    assert table.bound_tokens().tolist() == [0, 150, 0, 0, 0]


def test_the_pause_is_the_recorded_one(run_import, json_file, weka):
    calls = [weka.call(0, weka.ids((4, "a"))), weka.call(12, weka.ids((5, "a")), think_time=9.75)]
    table = run_import("weka", json_file(weka.session(calls)))
    assert table.delay_s.tolist() == [0.0, 9.75]


def test_without_a_recorded_pause_it_is_the_gap_after_the_answer(run_import, json_file, weka):
    calls = [weka.call(0, weka.ids((4, "a"))), weka.call(12, weka.ids((5, "a")))]
    table = run_import("weka", json_file(weka.session(calls)))
    assert table.delay_s.tolist() == [0.0, 10.0]


def test_a_missing_api_time_counts_as_the_sessions_median(run_import, json_file, weka):
    calls = [
        weka.call(0, weka.ids((4, "a")), api_time=4.0),
        weka.call(10, weka.ids((5, "a")), api_time=None, think_time=6.0),
        # Its think_time counts from the answer at 4 s, over the call in between.
        weka.call(30, weka.ids((6, "a")), think_time=26.0, api_time=6.0),
        weka.call(40, weka.ids((7, "a")), api_time=None),
        weka.call(43, weka.ids((8, "a")), api_time=5.0),
    ]
    table = run_import("weka", json_file(weka.session(calls)))
    # The median is 5 s: 30 - (10 + 5). The estimate never reaches past the next call.
    assert table.delay_s.tolist() == [0.0, 6.0, 15.0, 4.0, 0.0]
    assert np.isnan(table.observed_e2e_s).tolist() == [False, True, False, True, False]
    assert any("api_time" in note and note.endswith(": 2") for note in table.metadata.notes)


def test_after_an_answer_that_was_not_recorded_a_short_pause_is_a_tools(run_import, json_file, weka):
    lost = {"api_time": None, "stop": "", "output_types": []}
    calls = [
        weka.call(0, weka.ids((4, "a")), input_types=["text"], **lost),
        weka.call(20, weka.ids((5, "a")), input_types=["text"], **lost),
        weka.call(300, weka.ids((6, "a")), input_types=["text"]),
        weka.call(310, weka.ids((7, "a")), input_types=["text"]),
    ]
    table = run_import("weka", json_file(weka.session(calls)))
    assert _triggers(table) == ["user", "tool_result", "user", "user"]


@pytest.mark.parametrize(
    ("inputs", "trigger"),
    [
        (["text"], "user"),
        (["tool_result"], "tool_result"),
        (["text", "tool_result", "tool_use"], "resume"),
        (["text", "thinking"], "resume"),
        ([], "user"),
    ],
)
def test_the_trigger_is_what_the_input_consists_of(run_import, json_file, weka, inputs, trigger):
    calls = [weka.call(0, weka.ids((4, "a"))), weka.call(9, weka.ids((5, "a")), input_types=inputs)]
    assert _triggers(run_import("weka", json_file(weka.session(calls))))[1] == trigger


def test_an_overlapping_call_does_not_wait_for_the_one_that_still_runs(run_import, json_file, weka):
    calls = [
        weka.call(0, weka.ids((4, "a")), api_time=2.0),
        weka.call(5, weka.ids((5, "a")), api_time=30.0),
        weka.call(8, weka.ids((6, "a")), api_time=2.0),
        weka.call(40, weka.ids((7, "a")), api_time=2.0),
    ]
    table = run_import("weka", json_file(weka.session(calls)))
    assert [_after(table, row) for row in range(4)] == [[], [0], [0], [1, 2]]
    assert table.delay_s.tolist() == [0.0, 3.0, 6.0, 5.0]


def _with_agents(weka, shift=0.0):
    """Call at 0..10; two blocking agents 10..40 and 10..60, one in the background from 10 on; join at 65."""
    sub = [weka.call(0 + shift, weka.ids((3, "s")), api_time=5.0), weka.call(8 + shift, weka.ids((4, "s")))]
    longer = [
        weka.call(0 + shift, weka.ids((3, "s"), (1, "t"))),
        weka.call(40 + shift, weka.ids((3, "s"), (2, "t")), api_time=8.0),
    ]
    background = [weka.call(1 + shift, weka.ids((2, "u"))), weka.call(200 + shift, weka.ids((3, "u")))]
    return weka.session(
        [
            weka.call(0, weka.ids((5, "m")), api_time=10.0, input_types=["text"]),
            weka.agent(40, sub, duration_ms=30_000),
            weka.agent(60, longer, duration_ms=50_000),
            weka.agent(10, background, status="async_launched"),
            weka.call(65, weka.ids((6, "m")), think_time=55.0),
        ]
    )


def test_sub_agents_are_sessions_that_start_after_their_call_and_blocking_ones_are_joined(
    run_import, json_file, weka
):
    table = run_import("weka", json_file(_with_agents(weka)))
    assert table.n == 8
    assert len(table.session_names) == 4
    assert _triggers(table) == ["user", *["subagent", "tool_result"] * 3, "tool_result"]
    # Rows: main 0, agents 1-2, 3-4 and 5-6, join 7. All agents wait for call 0; nobody waits for 6.
    assert [_after(table, row) for row in range(8)] == [[], [0], [1], [0], [3], [0], [5], [0, 2, 4]]
    # Agents begin with the end of their call; the join counts from the last agent's last answer, 58 s.
    assert table.delay_s.tolist() == [0.0, 0.0, 3.0, 0.0, 38.0, 1.0, 197.0, 7.0]
    assert table.task_of_row().tolist() == [0] * 8


def test_agents_of_one_file_share_prefixes_with_each_other(run_import, json_file, weka):
    table = run_import("weka", json_file(_with_agents(weka)))
    assert table.parent[3] == 1
    assert table.shared_tokens[3] == 3 * 64


def test_relative_and_absolute_agent_times_give_the_same_trace(run_import, json_file, weka):
    relative = run_import("weka", json_file(_with_agents(weka)))
    absolute = run_import("weka", json_file(_with_agents(weka, shift=10.0)))
    assert np.array_equal(relative.delay_s, absolute.delay_s)
    assert np.array_equal(relative.after_rows, absolute.after_rows)


def test_an_exact_duplicate_is_dropped_and_counted(run_import, json_file, weka):
    calls = [weka.call(0, weka.ids((4, "a"))), weka.call(9, weka.ids((5, "a")))]
    one = json_file(weka.session(calls, id="trace_0001"), name="1.json")
    two = json_file(weka.session(calls, id="trace_0002"), name="2.json")
    table = run_import("weka", one, two)
    assert table.n == 2
    assert any("dropped: 1" in note for note in table.metadata.notes)


def test_a_resumed_session_forks_from_the_calls_it_repeats(run_import, json_file, weka):
    common = [weka.call(0, weka.ids((4, "a")), extra=30), weka.call(9, weka.ids((6, "a")), extra=3)]
    one = json_file(weka.session([*common, weka.call(20, weka.ids((6, "a"), (2, "b")))]), name="1.json")
    two = json_file(weka.session([*common, weka.call(90, weka.ids((6, "a"), (1, "c")))]), name="2.json")
    table = run_import("weka", one, two)
    assert table.parent.tolist() == [-1, 0, 1, 0, 1, 4]
    assert table.shared_tokens[3:5].tolist() == table.prompt_tokens[:2].tolist()
    assert table.bound_tokens()[3:5].tolist() == table.prompt_tokens[:2].tolist()
    # What follows the repeated calls extends them in its own session.
    assert table.shared_tokens[5] == 6 * 64 + 3
    assert [_after(table, row) for row in (3, 4, 5)] == [[], [3], [4]]


def test_sessions_with_one_equal_call_are_not_linked(run_import, json_file, weka):
    calls = [weka.call(0, weka.ids((4, "a")))]
    one = json_file(weka.session([*calls, weka.call(9, weka.ids((5, "a")))]), name="1.json")
    two = json_file(weka.session([*calls, weka.call(9, weka.ids((4, "a"), (1, "b")))]), name="2.json")
    assert run_import("weka", one, two).parent.tolist() == [-1, 0, -1, 2]


def test_ids_beyond_the_full_blocks_are_cut_and_counted(run_import, json_file, weka):
    calls = [weka.call(0, weka.ids((4, "a"))), weka.call(9, weka.ids((6, "a")))]
    calls[0]["in"] = calls[1]["in"] = 4 * 64 + 10
    table = run_import("weka", json_file(weka.session(calls)))
    # Both prompts end in the fifth block: its hash, or a sixth, says nothing about them.
    assert table.shared_tokens.tolist() == [0, 4 * 64 + 10]
    assert any("cut: 1" in note for note in table.metadata.notes)


def test_a_call_without_prompt_is_dropped_and_one_without_output_kept(run_import, json_file, weka):
    calls = [
        weka.call(0, weka.ids((4, "a")), out=0),
        weka.call(5, [], out=3),
        weka.call(9, weka.ids((5, "a"))),
    ]
    table = run_import("weka", json_file(weka.session(calls)))
    assert table.output_tokens.tolist() == [1, 50]
    assert table.turn.tolist() == [0, 1]
    assert sum("dropped: 1" in note or "one token: 1" in note for note in table.metadata.notes) == 2


def test_negative_times_are_taken_as_zero_and_counted(run_import, json_file, weka):
    calls = [weka.call(0, weka.ids((4, "a"))), weka.call(9, weka.ids((5, "a")), think_time=-1.0)]
    table = run_import("weka", json_file(weka.session(calls)))
    assert table.delay_s.tolist() == [0.0, 0.0]
    assert any("negative think_time" in note for note in table.metadata.notes)


def test_limit_counts_sessions(run_import, json_file, weka):
    sources = [json_file(weka.session([weka.call(0, [1], out=n)]), name=f"{n}.json") for n in range(1, 5)]
    assert run_import("weka", *sources, limit=2).n == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"block_size": 16}, "`block_size` is 16"),
        ({"requests": {}}, "`requests` must be a list"),
        ({"requests": [7]}, "`requests` must be a list of objects"),
    ],
)
def test_a_malformed_session_names_its_file(run_import, json_file, weka, change, says):
    with pytest.raises(TraceError, match=says) as error:
        run_import("weka", json_file(weka.session([]) | change))
    assert "source.json" in str(error.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"in": "many"}, "`in` is a str"),
        ({"in": 10.5}, "`in` is 10.5"),
        ({"out": -1}, "`out` is -1"),
        ({"out": None}, "`out` is None"),
        ({"t": None}, "`t` is missing"),
        ({"t": float("nan")}, "`t` is nan"),
        ({"api_time": "soon"}, "`api_time` is a str"),
        ({"hash_ids": None}, "`hash_ids` must be a list"),
        ({"hash_ids": [1.5, 2, 3, 4]}, "whole numbers or strings"),
    ],
)
def test_a_malformed_request_names_its_place_and_key(run_import, json_file, weka, change, says):
    calls = [weka.call(0, weka.ids((4, "a"))), weka.call(9, weka.ids((4, "a"))) | change]
    with pytest.raises(TraceError, match=says) as error:
        run_import("weka", json_file(weka.session(calls)))
    assert "source.json" in str(error.value)


def test_another_format_is_refused(run_import, json_file):
    with pytest.raises(TraceError, match="no WEKA session"):
        run_import("weka", json_file({"timestamp": 0, "input_length": 5}))
