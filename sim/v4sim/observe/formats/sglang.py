"""SGLang responses: `meta_info` as /generate returns it, one JSON object a line.

Read from sglang 0.5.15 (tokenizer_manager, req_time_stats): `e2e_latency` in seconds from the moment the
server got the request, `request_received_ts` in seconds of the wall clock, `decode_throughput` = (tokens - 1)
over the time from first to last token, `spec_verify_ct`, `spec_num_correct_drafts`. The line may be the
response or hold it under `response`; `session_id` and `turn` stand beside it.
Left out: lists of responses (n > 1), and streams that were not joined.
"""

from __future__ import annotations

from typing import Any

from v4sim.observe.formats.base import Line, LogFormat, Told, identity
from v4sim.observe.seen import Seen, mapping, number, whole


def _meta(line: Line) -> Line:
    return mapping(line, "meta_info") or mapping(mapping(line, "response", "body"), "meta_info")


def _read(line: Line, where: str) -> Seen | None:
    meta = _meta(line)
    prompt, output = whole(meta, "prompt_tokens"), whole(meta, "completion_tokens")
    if prompt is None or not output:
        return None
    session, turn = identity(line)
    e2e, rate = number(meta, "e2e_latency"), number(meta, "decode_throughput")
    decode = (output - 1) / rate if rate else None
    details = mapping(meta, "cached_tokens_details")
    tiers = [whole(details, tier) or 0 for tier in ("device", "host", "storage")]
    cached = whole(meta, "cached_tokens")
    return Seen(
        where=where,
        session=session,
        turn=turn,
        prompt_tokens=prompt,
        output_tokens=output,
        sent_s=number(meta, "request_received_ts"),
        ttft_s=e2e - decode if e2e is not None and decode is not None else None,
        e2e_s=e2e,
        decode_s=decode,
        cached_tokens=sum(tiers) if cached is None and details else cached,
        verify_steps=whole(meta, "spec_verify_ct"),
        accepted_drafts=whole(meta, "spec_num_correct_drafts", "spec_accepted_drafts"),
    )


def _write(call: Told) -> dict[str, Any]:
    decode_s = (call.last_token_ns - call.first_token_ns) / 1e9
    meta: dict[str, Any] = {
        "id": f"{call.session}-{call.turn}",
        "finish_reason": {"type": "length", "length": call.output_tokens},
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": call.output_tokens,
        "cached_tokens": call.cached_tokens,
        "cached_tokens_details": {
            "device": call.hit_tokens,
            "host": call.hit_host_tokens,
            "storage": call.hit_storage_tokens,
        },
        "e2e_latency": (call.last_token_ns - call.sent_ns) / 1e9,
        "request_received_ts": call.sent_ns / 1e9,
        "request_finished_ts": call.last_token_ns / 1e9,
        "queue_time": (call.admit_ns - call.queued_ns) / 1e9,
    }
    if decode_s > 0 and call.output_tokens > 1:
        meta["decode_throughput"] = (call.output_tokens - 1) / decode_s
    if call.verify_steps > 0:
        meta["spec_verify_ct"] = call.verify_steps
        meta["spec_num_correct_drafts"] = call.drafts_accepted
        meta["spec_num_proposed_drafts"] = call.drafts_offered
    return {"session_id": call.session, "turn": call.turn, "meta_info": meta}


SGLANG = LogFormat("sglang", "responses with meta_info", lambda line: bool(_meta(line)), _read, _write)
