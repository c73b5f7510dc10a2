"""How the page calls what the result file names: event classes, parts of a step, tiers, reasons.

A name that is not listed here is shown as it stands, with its underscores as spaces: an engine may report
a class or a part that this version does not know, and it must not vanish.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

EVENT_CLASSES: dict[str, str] = {
    "all": "All calls",
    "resume_tool": "Resume after tool",
    "resume_user": "Resume after user",
    "cold": "Cold start",
    "warm": "Other append",
    "fork": "Fork",
    "rollback": "Rollback",
    "subagent": "Sub-agent",
    "recompute": "Prefix lost",
    "host_restore": "Host restore",
    "storage_restore": "Storage restore",
}
EVENT_CLASS_MEANING: dict[str, str] = {
    "resume_tool": "appends to its session after a tool returned",
    "resume_user": "appends to its session after a person wrote, or was retried",
    "cold": "starts a session and extends nothing",
    "warm": "appends to its session for another reason",
    "fork": "continues a call of another session, or one that was continued before",
    "rollback": "continues an earlier point of its own session",
    "subagent": "first call of a sub-agent",
    "recompute": "would extend a prefix, but the cache had less than half of it",
    "host_restore": "part of the prefix came from host memory",
    "storage_restore": "part of the prefix came from storage",
}
# The calls of class resume_tool again, timed from earlier moments: not classes of their own.
RESUME_VIEWS: dict[str, tuple[str, str]] = {
    "resume_tool_from_return": (
        "From the tool's return",
        "the client's own delay is in it; calls whose trace knows the tool's time",
    ),
    "resume_tool_from_ready": (
        "From the end of the call before",
        "the tool's own time and the client's delay are in it",
    ),
}
PARTS: dict[str, str] = {
    "projections": "Projections",
    "index_scan": "Index scan",
    "topk": "Top-k",
    "sparse_attention": "Sparse attention",
    "hca": "HCA",
    "swa": "Sliding window",
    "compressor": "Compressor",
    "attention_other": "Attention, other",
    "mhc": "mHC",
    "moe": "MoE GEMM",
    "dispatch_combine": "Dispatch/combine",
    "all_reduce": "All-reduce",
    "shared_expert": "Shared expert",
    "lm_head": "LM head",
    "mtp_draft": "MTP draft",
    "h2d": "Host to device",
    "overhead": "Overhead",
    "idle_wait": "Idle wait",
    "cpu": "CPU",
}
KINDS: dict[str, str] = {"decode": "Decode", "prefill": "Prefill", "mixed": "Mixed"}
TIERS: dict[str, str] = {
    "device": "Device",
    "host": "Host",
    "storage": "Storage",
    "computed": "Computed",
}
REASONS: dict[str, str] = {
    "front_end": "Host, before the queue",
    "queue": "Queued behind others",
    "kv": "No KV pages",
    "swa": "No sliding-window slots",
    "slots": "No request slot",
    "budget": "Prefill budget of a step",
    "prefill_budget": "Prefill budget of a step",
    "decode_graph": "Decode batch limit",
    "parked": "Parked chunk",
    "router": "Held by the router",
}
POOLS: dict[str, str] = {"kv": "KV tokens", "swa": "Sliding-window (SWA) tokens", "slots": "Request slots"}
PHASES: dict[str, str] = {
    "reasoning": "Reasoning",
    "code": "Code",
    "tool_json": "Tool JSON",
    "prose": "Prose",
    "recovery": "Recovery",
    "all": "All phases",
}
PROVENANCE: dict[str, str] = {
    "measured": "timed on the GPU by v4calib",
    "published": "taken from a published kernel table",
    "roofline": "computed from bytes, operations and the GPU's rates",
    "composed": "put together from other entries",
    "inferred": "read out of the engine's code or counted from the model",
    "assumed": "nothing was found; a stated guess",
    "derived": "a difference of other parts",
    "given": "stated by the deployment",
}


def label(table: Mapping[str, str], name: str) -> str:
    """The page's word for `name`, or the name itself made readable."""
    known = table.get(name)
    if known is not None:
        return known
    plain = name.replace("_", " ").strip()
    return plain[:1].upper() + plain[1:]


def ordered(table: Mapping[str, str], present: Iterable[str]) -> list[str]:
    """`present` in the order of `table`; names it does not know follow in their own order."""
    names = list(present)
    known = [name for name in table if name in names]
    return known + [name for name in names if name not in table]
