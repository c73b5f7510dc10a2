"""Dynamo request trace (`dynamo.request.trace.v1`): events of type `request_end`; one JSON object a line.

It names sessions but no turns: calls of a session are told apart by their sizes and order. Times are
milliseconds, `request_received_ms` of the wall clock. Tool events and replay hashes are not read.
"""

from __future__ import annotations

from typing import Any

from v4sim.observe.formats.base import Line, LogFormat, Told
from v4sim.observe.seen import Seen, mapping, number, text, whole


def _read(line: Line, where: str) -> Seen | None:
    request, context = mapping(line, "request"), mapping(line, "agent_context")
    prompt, output = whole(request, "input_tokens"), whole(request, "output_tokens")
    if line.get("event_type") != "request_end" or prompt is None or not output:
        return None
    ttft, total = number(request, "ttft_ms"), number(request, "total_time_ms")
    received = number(request, "request_received_ms")
    return Seen(
        where=where,
        session=text(context, "session_id", "trajectory_id", "program_id"),
        prompt_tokens=prompt,
        output_tokens=output,
        sent_s=None if received is None else received / 1e3,
        ttft_s=None if ttft is None else ttft / 1e3,
        e2e_s=None if total is None else total / 1e3,
        decode_s=(total - ttft) / 1e3 if total is not None and ttft is not None else None,
        cached_tokens=whole(request, "cached_tokens"),
    )


def _write(call: Told) -> dict[str, Any]:
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": call.last_token_ns / 1e6,
        "agent_context": {"session_id": call.session},
        "request": {
            "request_id": f"{call.session}-{call.turn}",
            "input_tokens": call.prompt_tokens,
            "output_tokens": call.output_tokens,
            "cached_tokens": call.cached_tokens,
            "request_received_ms": call.sent_ns / 1e6,
            "ttft_ms": (call.first_token_ns - call.sent_ns) / 1e6,
            "total_time_ms": (call.last_token_ns - call.sent_ns) / 1e6,
        },
    }


DYNAMO = LogFormat(
    "dynamo",
    "request trace v1",
    lambda line: isinstance(line.get("event_type"), str) and ("request" in line or "tool" in line),
    _read,
    _write,
)
