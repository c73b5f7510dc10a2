"""Reading a run directory: tolerant of what is absent, strict about what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from v4reports.rundir import read_run
from v4sim.errors import RunError


def rewrite(run_dir: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    path = run_dir / "result.json"
    result = json.loads(path.read_text())
    change(result)
    path.write_text(json.dumps(result))
    return run_dir


def test_a_run_is_read_as_it_was_written(run_dir: Path) -> None:
    written = json.loads((run_dir / "result.json").read_text())
    run = read_run(run_dir)
    assert run.window_s == (240.0, 1620.0)
    assert run.steady.ttft_ms["cold"].p95 == written["steady"]["ttft_ms"]["cold"]["p95"]
    assert run.steady.ttft_ms["all"].p95_ci == tuple(written["steady"]["ttft_ms"]["all"]["p95_ci"])
    assert run.full.tokens["prompt"] == sum(
        run.full.tokens[tier] for tier in ("device", "host", "storage", "computed")
    )
    assert run.calls is not None
    assert run.calls.n == written["totals"]["calls"]
    assert run.headline.what_limits == tuple(written["headline"]["what_limits"])


def test_a_single_text_is_a_list_of_one(run_dir: Path) -> None:
    rewrite(run_dir, lambda result: result["headline"].update(try_next="add GPUs"))
    assert read_run(run_dir).headline.try_next == ("add GPUs",)


def test_a_smallest_run_holds_only_a_version(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"schema_version": 1}')
    run = read_run(tmp_path)
    assert run.calls is None
    assert run.series is None
    assert run.window_s is None
    assert run.steady.ttft_ms == {}
    assert run.steady.speculation is None
    assert run.headline.number is None


def test_a_distribution_of_nothing_is_left_out(run_dir: Path) -> None:
    def empty(result: dict[str, Any]) -> None:
        result["steady"]["ttft_ms"]["fork"] = {"count": 0}
        result["steady"]["tpot_ms"] = {"count": 0, "p50": None}
        result["steady"]["itl_ms"]["p99"] = float("nan")

    steady = read_run(rewrite(run_dir, empty)).steady
    assert "fork" not in steady.ttft_ms
    assert steady.tpot_ms is None
    assert steady.itl_ms is None


def test_not_a_run_directory(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run directory: it holds no result\.json"):
        read_run(tmp_path)


@pytest.mark.parametrize("version", [None, 2, 0])
def test_another_schema_version_is_refused(run_dir: Path, version: int | None) -> None:
    rewrite(run_dir, lambda result: result.update(schema_version=version))
    with pytest.raises(RunError, match=f"schema_version is {version}"):
        read_run(run_dir)


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "cannot be read as JSON"), ("[]", "an object must stand there"), ("<!doctype html>", "JSON")],
)
def test_a_broken_result_is_one_paragraph(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(RunError, match=says) as caught:
        read_run(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("headline", "sentence"), 5, "`headline.sentence` is 5, but a text"),
        (("steady", "ttft_ms", "all", "p50"), "fast", '`steady.ttft_ms.all.p50` is "fast", but a number'),
        (("steady", "calls"), [1], r"`steady.calls` is \[1\], but an object"),
        (("steady", "pools"), {"kv": 1}, "`steady.pools` is .*, but a list of objects"),
        (("series", "kv_used"), "all", '`series.kv_used` is "all", but a list of numbers for each rank'),
        (("provenance",), "published", "`provenance` is .*, but a list of objects"),
        (("domain_warnings",), {"a": 1}, "`domain_warnings` is .*, but a text or a list of texts"),
        (("steady", "cost", "low"), True, "`steady.cost.low` is true, but a number"),
    ],
)
def test_a_wrong_type_is_named_with_its_key(
    run_dir: Path, path: tuple[str, ...], value: Any, expected: str
) -> None:
    def spoil(result: dict[str, Any]) -> None:
        for key in path[:-1]:
            result = result[key]
        result[path[-1]] = value

    with pytest.raises(RunError, match=expected):
        read_run(rewrite(run_dir, spoil))


def test_positions_offered_and_accepted_must_match(run_dir: Path) -> None:
    def spoil(result: dict[str, Any]) -> None:
        result["steady"]["speculation"]["by_phase"]["code"]["accepted"].pop()

    with pytest.raises(RunError, match=r"by_phase\.code\.accepted.*each of the 3 positions"):
        read_run(rewrite(run_dir, spoil))


def test_broken_parquet_is_named(run_dir: Path) -> None:
    (run_dir / "calls.parquet").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(RunError, match=r"calls\.parquet: cannot be read as parquet"):
        read_run(run_dir)


def test_series_by_sample_and_by_rank_are_the_same(
    run_dir: Path, runbuilder: ModuleType, tmp_path: Path
) -> None:
    def transpose(result: dict[str, Any]) -> None:
        series = result["series"]
        for name in ("kv_used", "running"):
            series[name] = [list(rank) for rank in zip(*series[name], strict=True)]

    by_sample = read_run(run_dir).series
    by_rank = read_run(runbuilder.build(tmp_path / "other", change=transpose)).series
    assert by_rank is not None
    assert by_sample is not None
    assert (by_rank.by_name["kv_used"] == by_sample.by_name["kv_used"]).all()
    assert by_rank.by_name["kv_used"].shape[0] == runbuilder.NUM_RANKS
