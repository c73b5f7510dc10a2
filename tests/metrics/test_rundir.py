"""A run directory: whole or not at all, the same bytes for the same run, nothing of others replaced."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest

from v4sim import config, rundir
from v4sim.errors import RunError
from v4sim.metrics import calls_file, summarise
from v4sim.metrics.calls_file import MEANING
from v4sim.metrics.histogram import LogHistogram
from v4sim.workload import WorkloadOptions
from v4traces import CallRow

S = 1_000_000_000
FILES = {"result.json", "calls.parquet", "timeline.json"}


@pytest.fixture(scope="module")
def run(make_trace, make_result, served):
    """A run of three calls with everything that is needed to summarise it."""
    table = make_trace(
        [
            CallRow(session_id="a", turn=0, prompt_tokens=100, output_tokens=5),
            CallRow(session_id="a", turn=1, prompt_tokens=200, output_tokens=5, trigger="tool_result"),
            CallRow(session_id="b", turn=0, prompt_tokens=100, output_tokens=5),
        ]
    )
    calls = [
        served(0, 0, 0, 1, 5, prompt_tokens=100, computed_tokens=100, output_tokens=5, gpu_share_ns=S),
        served(
            1, 5, 6, 7, 9, session=0, turn=1, trigger=1, prompt_tokens=200, hit_tokens=64, computed_tokens=136
        )
        | {"output_tokens": 5, "gpu_share_ns": S, "event_class": "resume_tool", "wait_kv_ns": S},
        {"row": 2, "session": 1, "ready_ns": 0, "sent_ns": 0, "done": "rejected", "replica": -1, "rank": -1},
    ]
    gaps = LogHistogram()
    gaps.add(np.array([S, S]), np.array([4, 2]))
    series = {"t_ns": np.array([0, 5]) * S, "kv_used": np.array([[100], [256]])}
    return make_result(calls, end_s=10.0, itl_burst=gaps, itl_divided=gaps, series=series), table


@pytest.fixture
def summary(run):
    return summarise(
        *run, config.load("4xB200 V4-Flash DPA4+EP4 sglang"), workload=WorkloadOptions(window="0:10")
    )


def test_what_was_written_is_read_back(run, summary, tmp_path):
    out = rundir.write_run(run[0], summary, {"seed": 7}, tmp_path / "out")
    assert {path.name for path in out.iterdir()} == FILES
    stored = rundir.read_run(out)
    assert stored.result["schema_version"] == 1
    assert stored.result["manifest"] == {"seed": 7}
    assert stored.result == json.loads(json.dumps(rundir.result_object(summary, {"seed": 7})))
    for name, column in summary.calls.columns.items():
        assert stored.calls[name].tolist() == column.tolist(), name
    assert list(stored.calls.event_class) == list(summary.calls.event_class)
    assert list(stored.calls.done) == list(summary.calls.done)


def test_row_groups_only_cut_what_is_stored(run, summary, tmp_path, monkeypatch):
    whole = rundir.write_run(run[0], summary, {}, tmp_path / "whole")
    monkeypatch.setattr(calls_file, "_ROW_GROUP", 2)
    cut = rundir.write_run(run[0], summary, {}, tmp_path / "cut")
    files = [pq.ParquetFile(out / "calls.parquet") for out in (whole, cut)]
    assert [file.num_row_groups for file in files] == [1, 2]
    assert files[0].read().equals(files[1].read())


def test_the_tree_has_every_entry_of_the_schema(summary):
    assert summary.tree.keys() == {
        "headline",
        "totals",
        "window",
        "steady",
        "full",
        "series",
        "provenance",
        "domain_warnings",
        "assumptions",
    }
    entries = {
        "ttft_ms",
        "itl_burst_ms",
        "itl_ms",
        "tpot_ms",
        "e2e_ms",
        "queue_ms",
        "step_ms",
        "throughput",
        "tokens",
        "hit",
        "parts_s",
        "parts_by_kind_s",
        "pools",
        "ranks",
        "speculation",
        "blocked",
        "tasks",
        "cost",
        "calls",
    }
    assert summary.tree["steady"].keys() == summary.tree["full"].keys() == entries


def test_figures_of_a_run_by_hand(summary):
    full = summary.tree["full"]
    assert full["calls"] == {
        "injected": 3,
        "completed": 2,
        "rejected": 1,
        "aborted": 0,
        "running": 0,
        "queued": 0,
    }
    assert full["tokens"]["prompt"] == 300
    assert full["hit"]["token_ratio"] == 64 / 300
    assert full["blocked"] == {"kv": {"calls": 1, "time_s": 1.0}}
    assert full["ttft_ms"]["resume_tool"]["p50"] == 2000.0
    assert full["tasks"]["completed"] == 1
    assert full["cost"]["price_per_gpu_hour"] == 2.9
    assert summary.tree["totals"]["gpus"] == 4
    assert summary.tree["window"]["rule"].endswith("as asked")


def test_totals_that_were_not_recorded_by_time_say_so(summary):
    assert summary.tree["steady"]["itl_ms"]["scope"] == "full"
    assert "scope" not in summary.tree["full"]["itl_ms"]


def test_the_same_run_gives_the_same_bytes(run, tmp_path):
    deployment = config.load("4xB200 V4-Flash DPA4+EP4 sglang")
    for name in ("one", "two"):
        rundir.write_run(run[0], summarise(*run, deployment), {"seed": 7}, tmp_path / name)
    for file in FILES:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_every_column_says_what_it_means(run, summary, tmp_path):
    out = rundir.write_run(run[0], summary, {}, tmp_path / "out")
    schema = pq.read_schema(out / "calls.parquet")
    assert schema.names == list(MEANING)
    assert schema.field("sent_ns").metadata[b"unit"] == b"ns"
    assert schema.field("prompt_tokens").metadata[b"meaning"] == b"prompt"
    assert pq.read_table(out / "calls.parquet")["task"].to_pylist() == [0, 0, 1]


def test_nothing_is_overwritten_without_force(run, summary, tmp_path):
    rundir.write_run(run[0], summary, {"seed": 1}, tmp_path / "out")
    with pytest.raises(RunError, match="--force"):
        rundir.write_run(run[0], summary, {"seed": 2}, tmp_path / "out")
    assert rundir.read_run(tmp_path / "out").result["manifest"]["seed"] == 1
    rundir.write_run(run[0], summary, {"seed": 2}, tmp_path / "out", force=True)
    assert rundir.read_run(tmp_path / "out").result["manifest"]["seed"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("held", [["notes.txt"], ["result.json", "notes.txt"], ["calls.parquet"]])
def test_force_replaces_run_directories_only(run, summary, tmp_path, held):
    out = tmp_path / "out"
    out.mkdir()
    for name in held:
        (out / name).write_text("precious")
    with pytest.raises(RunError, match="not a run directory"):
        rundir.write_run(run[0], summary, {}, out, force=True)
    assert sorted(path.name for path in out.iterdir()) == sorted(held)
    assert all((out / name).read_text() == "precious" for name in held)


def test_an_empty_directory_is_free(run, summary, tmp_path):
    (tmp_path / "out").mkdir()
    rundir.write_run(run[0], summary, {}, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_directory_is_refused(run, summary, tmp_path, kind):
    target = tmp_path / "out"
    if kind == "file":
        target.write_text("mine")
    else:
        (tmp_path / "elsewhere").mkdir()
        target.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="not a directory"):
        rundir.write_run(run[0], summary, {}, target, force=True)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_interrupted_run_leaves_what_was_there(run, summary, tmp_path, replace, error):
    if replace:
        rundir.write_run(run[0], summary, {"seed": 1}, tmp_path / "out")

    def interrupted(hidden):
        (hidden / "report.html").write_text("half a rep")
        raise error

    with pytest.raises(error):
        rundir.write_run(run[0], summary, {"seed": 2}, tmp_path / "out", force=True, finish=interrupted)
    assert [path.name for path in tmp_path.iterdir()] == (["out"] if replace else [])
    if replace:
        assert rundir.read_run(tmp_path / "out").result["manifest"]["seed"] == 1


def test_a_report_appears_together_with_the_rest(run, summary, tmp_path):
    def report(hidden):
        assert {path.name for path in hidden.iterdir()} == FILES
        assert not (tmp_path / "deep" / "out").exists()
        (hidden / "report.html").write_text("whole")

    out = rundir.write_run(run[0], summary, {}, tmp_path / "deep" / "out", finish=report)
    assert (out / "report.html").read_text() == "whole"


def test_a_directory_that_appeared_meanwhile_is_not_replaced(run, summary, tmp_path):
    def somebody_else(hidden):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "notes.txt").write_text("precious")

    with pytest.raises(RunError, match="already exists"):
        rundir.write_run(run[0], summary, {}, tmp_path / "out", finish=somebody_else)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_reading_what_is_no_run(tmp_path):
    with pytest.raises(RunError, match="not a run directory"):
        rundir.read_run(tmp_path)
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(RunError, match="cannot be read as JSON"):
        rundir.read_run(tmp_path)
    (tmp_path / "result.json").write_text('{"schema_version": 2}')
    with pytest.raises(RunError, match="schema_version is 2"):
        rundir.read_run(tmp_path)


def test_numbers_become_json():
    made = rundir.plain(
        {
            "a": np.float64(1 / 3),
            "b": (np.int32(4), math.nan, np.inf),
            "c": np.array([[1, 2]]),
            "d": np.array([0.1 + 0.2]),
            "e": True,
        }
    )
    assert made == {"a": 0.333333333333, "b": [4, None, None], "c": [[1, 2]], "d": [0.3], "e": True}
    with pytest.raises(RunError, match="object"):
        rundir.plain(object())
