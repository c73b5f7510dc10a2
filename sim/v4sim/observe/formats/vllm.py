"""vLLM responses with `usage` and, under --enable-per-request-metrics, `metrics`; one JSON object a line.

Read from vllm 0.25.0 (entrypoints/generate/base/serving.py): `time_to_first_token_ms` counts from
*scheduling*, `queue_time_ms` from the engine's queue to scheduling, `generation_time_ms` from first to last
token. The front end is in none of them: what a call cost before the queue shows only where the client wrote
`latency_s` (from sending to the end) beside the response. `sent_s` is the client's clock.
`metrics.speculative_decoding` is read under the names of vllm's own counters (num_drafts,
num_accepted_tokens). Left out: streams that were not joined.
"""

from __future__ import annotations

from typing import Any

from v4sim.observe.formats.base import Line, LogFormat, Told, identity
from v4sim.observe.seen import Seen, mapping, number, whole


def _body(line: Line) -> Line:
    return line if "usage" in line else mapping(line, "response", "body")


def _matches(line: Line) -> bool:
    return "prompt_tokens" in mapping(_body(line), "usage")


def _read(line: Line, where: str) -> Seen | None:
    body = _body(line)
    usage, metrics = mapping(body, "usage"), mapping(body, "metrics")
    prompt, output = whole(usage, "prompt_tokens"), whole(usage, "completion_tokens")
    if prompt is None or not output:
        return None
    session, turn = identity(line)
    first, queue = number(metrics, "time_to_first_token_ms"), number(metrics, "queue_time_ms")
    generation = number(metrics, "generation_time_ms")
    e2e = number(line, "latency_s")
    decode = None if generation is None else generation / 1e3
    drafts = mapping(metrics, "speculative_decoding")
    engine = None if first is None else (first + (queue or 0.0)) / 1e3
    ttft = e2e - decode if e2e is not None and decode is not None else None
    if e2e is None and engine is not None and decode is not None:
        e2e = engine + decode  # from the queue on: without the front end
    return Seen(
        where=where,
        session=session,
        turn=turn,
        prompt_tokens=prompt,
        output_tokens=output,
        sent_s=number(line, "sent_s"),
        ttft_s=ttft,
        engine_ttft_s=engine,
        e2e_s=e2e,
        decode_s=decode,
        cached_tokens=whole(mapping(usage, "prompt_tokens_details"), "cached_tokens"),
        verify_steps=whole(drafts, "num_drafts"),
        accepted_drafts=whole(drafts, "num_accepted_tokens"),
    )


def _write(call: Told) -> dict[str, Any]:
    decode_ms = (call.last_token_ns - call.first_token_ns) / 1e6
    metrics: dict[str, Any] = {
        "time_to_first_token_ms": (call.first_token_ns - call.admit_ns) / 1e6,
        "queue_time_ms": (call.admit_ns - call.queued_ns) / 1e6,
        "generation_time_ms": decode_ms,
    }
    if call.output_tokens > 1:
        metrics["mean_itl_ms"] = decode_ms / (call.output_tokens - 1)
    if call.verify_steps > 0:
        metrics["speculative_decoding"] = {
            "num_drafts": call.verify_steps,
            "num_draft_tokens": call.drafts_offered,
            "num_accepted_tokens": call.drafts_accepted,
        }
    usage = {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": call.output_tokens,
        "total_tokens": call.prompt_tokens + call.output_tokens,
        "prompt_tokens_details": {"cached_tokens": call.cached_tokens},
    }
    return {
        "session_id": call.session,
        "turn": call.turn,
        "sent_s": call.sent_ns / 1e9,
        "latency_s": (call.last_token_ns - call.sent_ns) / 1e9,
        "id": f"chatcmpl-{call.session}-{call.turn}",
        "object": "chat.completion",
        "usage": usage,
        "metrics": metrics,
    }


VLLM = LogFormat("vllm", "responses with usage and metrics", _matches, _read, _write)
