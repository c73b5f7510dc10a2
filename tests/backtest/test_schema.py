"""Reading targets: the file as a whole, and one bad target among good ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from v4sim.backtest.schema import parse_targets, read_targets
from v4sim.errors import ConfigError

Entry = Callable[..., dict[str, Any]]


def text(*entries: Any, schema: Any = 1) -> str:
    return json.dumps({"schema": schema, "targets": list(entries)})


def test_a_good_file_is_read(entry: Entry) -> None:
    file = parse_targets(text(entry(), entry(id="other", num_gpus=8)), "two.json")
    assert [t.id for t in file.targets] == ["hand", "other"]
    assert file.targets[1].num_gpus == 8
    assert file.refused == ()


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "schema is None"),
        (json.dumps({"schema": 2, "targets": []}), "schema is 2"),
        (json.dumps({"schema": 1, "targets": []}), "at least one target"),
    ],
)
def test_a_file_that_is_none_is_refused(broken: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_targets(broken, "bad.json")


def test_an_id_may_stand_once(entry: Entry) -> None:
    with pytest.raises(ConfigError, match="'hand' stands twice"):
        parse_targets(text(entry(), entry()), "bad.json")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json cannot be read"):
        read_targets("nowhere.json")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_gpus": 0}, "num_gpus"),
        ({"num_gpus": "four"}, "num_gpus"),
        ({"metrics": []}, "metrics"),
        ({"workload": {"isl": -1}}, r"workload\.isl"),
        (
            {"metrics": [{"name": "ttft_ms", "stat": "p50", "value": 3, "low": 4, "high": 5}]},
            "low 4 <= value 3",
        ),
    ],
)
def test_a_bad_target_is_refused_and_the_others_are_kept(
    entry: Entry, changes: dict[str, Any], says: str
) -> None:
    file = parse_targets(text(entry(id="bad", **changes), entry()), "mixed.json")
    assert [t.id for t in file.targets] == ["hand"]
    assert file.refused[0].target == "bad"
    assert re.search(says, file.refused[0].reason)


def test_keys_that_nothing_reads_are_named(target: Callable[..., Any]) -> None:
    assert target(colour="red", workload={"shape": "round"}).unread_keys == ("colour", "workload.shape")
    assert target().unread_keys == ()
