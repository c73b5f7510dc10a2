"""AIPerf `profile_export.jsonl`: `metadata`, `metrics` of value and unit, `error`.

Moments are nanoseconds of `request_start_ns`; latencies come with their unit (ns, us, ms, s). Cancelled and
failed requests, and those of the warm-up phase, are no calls. `v4sim.export.export_records` writes the same.
Left out: AIPerf's aggregates, which are other files.
"""

from __future__ import annotations

from typing import Any

from v4sim.observe.formats.base import Line, LogFormat, Told
from v4sim.observe.seen import Seen, mapping, number, text, whole

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}


def _value(metrics: Line, *names: str) -> float | None:
    for name in names:
        found = number(mapping(metrics, name), "value")
        if found is not None:
            return found
    return None


def _seconds(metrics: Line, name: str) -> float | None:
    found = mapping(metrics, name)
    value, unit = number(found, "value"), text(found, "unit")
    return None if value is None else value * _SECONDS.get(unit or "ms", 1e-3)


def _count(metrics: Line, *names: str) -> int | None:
    value = _value(metrics, *names)
    return None if value is None else int(value)


def _read(line: Line, where: str) -> Seen | None:
    metadata, metrics = mapping(line, "metadata"), mapping(line, "metrics")
    if line.get("error") or metadata.get("was_cancelled") or metadata.get("benchmark_phase") == "warmup":
        return None
    prompt = _count(metrics, "usage_prompt_tokens", "input_sequence_length")
    output = _count(metrics, "output_sequence_length", "usage_completion_tokens", "output_token_count")
    if prompt is None or not output:
        return None
    ttft, e2e = _seconds(metrics, "time_to_first_token"), _seconds(metrics, "request_latency")
    start = number(metadata, "request_start_ns")
    return Seen(
        where=where,
        session=text(metadata, "conversation_id", "x_correlation_id"),
        turn=whole(metadata, "turn_index"),
        prompt_tokens=prompt,
        output_tokens=output,
        sent_s=None if start is None else start / 1e9,
        ttft_s=ttft,
        e2e_s=e2e,
        decode_s=e2e - ttft if e2e is not None and ttft is not None else None,
        cached_tokens=_count(metrics, "usage_prompt_cache_read_tokens"),
        verify_steps=_count(metrics, "spec_decode_steps"),
        accepted_drafts=_count(metrics, "spec_decode_accepted_draft_tokens"),
    )


def _write(call: Told) -> dict[str, Any]:
    metrics: dict[str, tuple[float, str]] = {
        "input_sequence_length": (call.prompt_tokens, "tokens"),
        "output_sequence_length": (call.output_tokens, "tokens"),
        "time_to_first_token": ((call.first_token_ns - call.sent_ns) / 1e6, "ms"),
        "request_latency": ((call.last_token_ns - call.sent_ns) / 1e6, "ms"),
        "usage_prompt_cache_read_tokens": (call.cached_tokens, "tokens"),
    }
    if call.verify_steps > 0:
        metrics["spec_decode_steps"] = (call.verify_steps, "count")
        metrics["spec_decode_accepted_draft_tokens"] = (call.drafts_accepted, "tokens")
    return {
        "metadata": {
            "x_request_id": f"{call.session}/{call.turn}",
            "conversation_id": call.session,
            "turn_index": call.turn,
            "request_start_ns": call.sent_ns,
            "request_end_ns": call.last_token_ns,
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        },
        "metrics": {name: {"value": value, "unit": unit} for name, (value, unit) in metrics.items()},
        "error": None,
    }


AIPERF = LogFormat(
    "aiperf",
    "profile_export.jsonl",
    lambda line: "metrics" in line and "request_start_ns" in mapping(line, "metadata"),
    _read,
    _write,
)
