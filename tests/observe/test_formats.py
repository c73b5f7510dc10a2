"""Lines as the engines write them, made by hand: sglang 0.5.15, vllm 0.25, AIPerf, Dynamo."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from v4sim.errors import ConfigError
from v4sim.observe import FORMATS, Seen, read_logs
from v4sim.observe.formats.base import Told
from v4traces.errors import V4Error

SGLANG_LINE: dict[str, Any] = {
    "text": "",
    "session_id": "a",
    "turn": 2,
    "meta_info": {
        "id": "f00d",
        "finish_reason": {"type": "stop", "matched": 1},
        "prompt_tokens": 20_480,
        "weight_version": "default",
        "completion_tokens": 101,
        "cached_tokens": 20_224,
        "cached_tokens_details": {"device": 16_384, "host": 3_840, "storage": 0},
        "dp_rank": 3,
        "spec_accept_rate": 0.5,
        "spec_accept_length": 2.525,
        "spec_num_correct_drafts": 60,
        "spec_num_proposed_drafts": 120,
        "spec_verify_ct": 40,
        "e2e_latency": 1.25,
        "request_received_ts": 1_796_000_000.5,
        "decode_throughput": 100.0,
        "queue_time": 0.01,
    },
}
VLLM_LINE: dict[str, Any] = {
    "session_id": "a",
    "turn": 2,
    "sent_s": 12.5,
    "latency_s": 1.4,
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "choices": [{"index": 0, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 20_480,
        "total_tokens": 20_581,
        "completion_tokens": 101,
        "prompt_tokens_details": {"cached_tokens": 20_224},
    },
    "metrics": {
        "time_to_first_token_ms": 180.0,
        "generation_time_ms": 1_000.0,
        "queue_time_ms": 20.0,
        "mean_itl_ms": 10.0,
        "tokens_per_second": 85.6,
    },
}
AIPERF_LINE: dict[str, Any] = {
    "metadata": {
        "session_num": 45,
        "x_request_id": "7609a2e7",
        "x_correlation_id": "32ee4f33",
        "conversation_id": "a",
        "turn_index": 2,
        "request_start_ns": 1_796_000_000_500_000_000,
        "request_end_ns": 1_796_000_001_750_000_000,
        "worker_id": "worker_1",
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    },
    "metrics": {
        "input_sequence_length": {"value": 20_480, "unit": "tokens"},
        "output_sequence_length": {"value": 101, "unit": "tokens"},
        "time_to_first_token": {"value": 250.0, "unit": "ms"},
        "request_latency": {"value": 1_250.0, "unit": "ms"},
        "inter_token_latency": {"value": 10.0, "unit": "ms"},
    },
    "error": None,
}
DYNAMO_LINE: dict[str, Any] = {
    "schema": "dynamo.request.trace.v1",
    "event_type": "request_end",
    "event_time_unix_ms": 1_796_000_001_750,
    "agent_context": {"session_id": "a", "parent_session_id": None},
    "request": {
        "request_id": "r1",
        "model": "deepseek-v4-flash",
        "input_tokens": 20_480,
        "output_tokens": 101,
        "cached_tokens": 20_224,
        "kv_hit_rate": 0.9875,
        "ttft_ms": 250.0,
        "request_received_ms": 1_796_000_000_500,
        "total_time_ms": 1_250.0,
        "finish_reason_metadata": {"finish_reason": "stop"},
    },
}
LINES = {"sglang": SGLANG_LINE, "vllm": VLLM_LINE, "aiperf": AIPERF_LINE, "dynamo": DYNAMO_LINE}


def read(tmp_path: Path, *lines: Any, name: str = "log.jsonl", form: str | None = None) -> Any:
    path = tmp_path / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return read_logs([path], form)


@pytest.mark.parametrize("form", sorted(LINES))
def test_a_line_is_told_by_its_keys_and_read(form: str, tmp_path: Path) -> None:
    log = read(tmp_path, LINES[form])
    call: Seen = log.seen[0]
    assert log.formats == (form,)
    assert (call.session, call.prompt_tokens, call.output_tokens) == ("a", 20_480, 101)
    assert call.turn == (None if form == "dynamo" else 2)
    assert call.tpot_s == pytest.approx(0.010)
    assert call.ttft_s == pytest.approx(0.4 if form == "vllm" else 0.25)
    assert call.cached_tokens == (None if form == "aiperf" else 20_224)


def test_what_only_one_engine_says(tmp_path: Path) -> None:
    sglang, vllm = read(tmp_path, SGLANG_LINE, VLLM_LINE).seen
    assert (sglang.verify_steps, sglang.accepted_drafts) == (40, 60)
    assert sglang.sent_s == 1_796_000_000.5
    assert vllm.engine_ttft_s == pytest.approx(0.2), "from the queue: 20 ms of queue and 180 of prefill"
    assert vllm.e2e_s == 1.4


def test_a_response_may_lie_inside_the_line(tmp_path: Path) -> None:
    outer = {"session_id": "b", "turn": 0, "response": {"meta_info": SGLANG_LINE["meta_info"]}}
    inner = {"session_id": "c", "turn": 1, "response": {k: VLLM_LINE[k] for k in ("usage", "metrics")}}
    log = read(tmp_path, outer, inner)
    assert [(c.session, c.turn) for c in log.seen] == [("b", 0), ("c", 1)]
    assert log.seen[1].e2e_s == pytest.approx(1.2), "without the client's clock: from the queue to the end"
    assert log.seen[1].ttft_s is None


def test_errors_warm_up_and_tools_are_no_calls(tmp_path: Path) -> None:
    failed = {**AIPERF_LINE, "error": {"type": "Timeout"}}
    warm = {**AIPERF_LINE, "metadata": {**AIPERF_LINE["metadata"], "benchmark_phase": "warmup"}}
    tool = {"event_type": "tool_end", "tool": {"tool_class": "shell", "duration_ms": 3}}
    log = read(tmp_path, failed, warm, tool, AIPERF_LINE)
    assert len(log.seen) == 1
    assert log.without_call == 3


def test_packed_logs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress((json.dumps(DYNAMO_LINE) + "\n").encode()))
    assert len(read_logs([path]).seen) == 1


def test_a_last_line_that_was_cut_off_is_left_out_and_one_in_the_middle_is_not(tmp_path: Path) -> None:
    whole, half = json.dumps(DYNAMO_LINE), json.dumps(DYNAMO_LINE)[:90]
    path = tmp_path / "log.jsonl"
    path.write_text(f"{whole}\n{half}")
    assert len(read_logs([path]).seen) == 1
    path.write_text(f"{half}\n{whole}\n")
    with pytest.raises(ConfigError, match=r"log\.jsonl:1 is not JSON"):
        read_logs([path])


@pytest.mark.parametrize(
    ("lines", "form", "message"),
    [
        ([{"timestamp": 1, "hash_ids": []}], None, r"log\.jsonl:1 is of no known log format .*hash_ids"),
        ([[1, 2]], None, "a list, not an object"),
        ([SGLANG_LINE], "trtllm", "choose one of sglang, vllm, aiperf, dynamo"),
        ([{**AIPERF_LINE, "error": {}, "metrics": {}}], None, "no finished call"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(
    lines: list[Any], form: str | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(V4Error, match=message):
        read(tmp_path, *lines, form=form)


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_what_is_written_is_read_back(form: str) -> None:
    call = Told(
        "s", 1, 5000, 41, 4096, 256, 0, 10**9, 10**9 + 5, 11 * 10**8, 12 * 10**8, 2 * 10**9, 20, 60, 20
    )
    seen = FORMATS[form].read(FORMATS[form].write(call), "here")
    assert seen is not None
    assert (seen.session, seen.prompt_tokens, seen.output_tokens) == ("s", 5000, 41)
    assert seen.sent_s == pytest.approx(1.0)
    assert seen.ttft_s == pytest.approx(0.2)
    assert seen.tpot_s == pytest.approx(0.02)
    assert seen.e2e_s == pytest.approx(1.0)
    assert seen.cached_tokens == 4352
    if form != "dynamo":
        assert (seen.turn, seen.verify_steps, seen.accepted_drafts) == (1, 20, 20)
