"""What AISimulate is asked to simulate: v4sim's own deployment, and work that must be the same."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """bench/ is a folder of scripts: its modules are found only while it is on the path."""
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module("peer")
    for name in set(sys.modules) - before:
        del sys.modules[name]


def result(sessions: int | None) -> dict[str, Any]:
    """The keys of a result.json that are read; one rank's pool is smaller, as after rounding."""
    engine = {"kind": "sglang", "chunked_prefill_tokens": 16384, "max_running": 256, "page_tokens": 256}
    return {
        "manifest": {
            "deployment": {
                "engine": engine,
                "model": {"name": "v4-flash"},
                "hardware": {"gpu": "b200"},
                "parallel": {"attention_tp": 1, "attention_dp": 4, "ep": 4},
                "speculation": {"kind": "mtp", "draft_tokens": 1},
            },
            "workload": {"sessions": sessions},
        },
        "full": {
            "speculation": {"mean_accepted_length": 1.75},
            "pools": [
                {"name": "kv", "capacity_tokens": 3_840_256},
                {"name": "swa", "capacity_tokens": 1024},
                {"name": "kv", "capacity_tokens": 3_840_000},
            ],
        },
        "totals": {"calls": 3153, "prompt_tokens": 302_526_614, "output_tokens": 1_155_484},
    }


def test_it_gets_what_a_rank_of_v4sim_has(peer: ModuleType) -> None:
    engine = peer.configuration(result(32), Path("weka"), "weka")["engine"]
    worker = engine["workers"]["aggregated"]
    assert worker["scheduler"] == {"max_batched_tokens": 4096, "max_sequences": 64}
    assert worker["kv_cache"] == {"block_size": 256, "capacity": {"type": "fixed", "blocks": 15_000}}
    assert worker["parallelism"] == {"tensor": 1, "attention_data": 4, "moe_expert": 4}
    assert engine["speculation"] == {
        "kind": "mtp",
        "params": {"depth": 1},
        "expected_accepted_tokens": 0.75,
    }


def test_the_load_is_closed_only_where_v4sim_keeps_sessions_alive(peer: ModuleType) -> None:
    loads = [peer.configuration(result(n), Path("x"), "mooncake")["traffic"]["load"] for n in (None, 32)]
    assert loads == [
        {"type": "trace_timestamps"},
        {"type": "trace_timestamps", "agentic_lanes": 32},
    ]


def test_models_of_subagents_are_declared_too(peer: ModuleType) -> None:
    deep = {"type": "subagent", "requests": [{"type": "n", "model": "c"}]}
    session = {
        "id": "s",
        "models": ["b"],
        "requests": [
            {"type": "s", "model": "a"},
            {"type": "subagent", "requests": [deep, {"type": "n", "model": "b"}]},
        ],
    }
    assert peer.declared(session) == {**session, "models": ["a", "b", "c"]}
    assert session["models"] == ["b"]


def test_two_calls_without_output_are_the_same_work(peer: ModuleType) -> None:
    peer.require_equal_work({**result(32)["totals"], "output_tokens": 1_155_482}, result(32), "C")


@pytest.mark.parametrize(
    ("key", "value"), [("calls", 3152), ("prompt_tokens", 302_526_613), ("output_tokens", 1_155_000)]
)
def test_other_work_stops_the_benchmark(peer: ModuleType, key: str, value: int) -> None:
    with pytest.raises(SystemExit, match=f"set C.*{key} {value} for"):
        peer.require_equal_work({**result(32)["totals"], key: value}, result(32), "C")


def test_a_ratio_above_one_is_in_favour_of_v4sim(peer: ModuleType) -> None:
    theirs = {"median_wall_s": 15.0, "median_cpu_s": 14.0, "peak_rss_mb": 200.0}
    ours = {"median_wall_s": 3.0, "median_cpu_s": 4.0, "peak_rss_mb": 400.0}
    assert peer.ratio(theirs, ours) == {"median_wall_s": 5.0, "median_cpu_s": 3.5, "peak_rss_mb": 0.5}


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("model", "name", "v4-pro"), ("hardware", "gpu", "h200"), ("speculation", "kind", "dspark")],
)
def test_what_has_no_known_name_there_is_not_replaced(
    peer: ModuleType, section: str, key: str, value: str
) -> None:
    of_another_set = result(32)
    of_another_set["manifest"]["deployment"][section][key] = value
    with pytest.raises(SystemExit, match=value):
        peer.configuration(of_another_set, Path("weka"), "weka")
