"""What limits a run, from what was seen in it, and what to try next.

Each kind of evidence gives at most one `Limit` with the share (0..1) it takes of what a client or an
operator loses; a limit below its threshold is not one. Kinds are asked in a fixed order of urgency, calls
that failed first, so that the answer is the same for the same run:

    failed calls        rejected or aborted
    waiting             time blocked on KV, SWA tails, slots, prefill budget or other calls, of all time to
                        first token
    lost prefixes       prompt tokens that an endless cache would have served, of all prompt tokens
    rank skew           attention work of the busiest rank over the mean, beyond balance
    idle GPUs           GPU time that no call took
    the step itself     the part of the step that takes most time

Leaves out: counterfactuals. This is what the run shows, not what +10 % of a resource would give.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WAIT_SHARE = 0.10
LOST_SHARE = 0.03
SKEW = 1.25
IDLE_SHARE = 0.50

# reason -> (what is short, what to try)
WAITS: dict[str, tuple[str, str]] = {
    "kv": (
        "room in the KV cache",
        "give it more memory (engine.mem_fraction), serve fewer sessions at once, or add replicas",
    ),
    "swa": (
        "room for sliding-window tails",
        "give windows more of the memory: engine.swa_full_ratio, or engine.swa_tokens_per_rank",
    ),
    "slots": ("a request slot", "raise engine.max_running (sglang) or engine.max_num_seqs (vllm)"),
    "budget": (
        "room in the prefill budget of a step",
        "raise engine.chunked_prefill_tokens (sglang) or engine.max_batched_tokens (vllm)",
    ),
    "front_end": (
        "the host, which prepares the prompt before the engine sees it",
        "check engine.cpu_cached_token_us and engine.cpu_request_us against your host",
    ),
    "queue": (
        "their turn, because other calls are computed first",
        "add GPUs or replicas, or serve fewer sessions at once",
    ),
}
PARTS_TRY: dict[str, tuple[str, str]] = {
    "index_scan": (
        "the index scan over long contexts",
        "use FP4 index keys (model.index_dtype=fp4), or more attention ranks with fewer sequences each",
    ),
    "moe": (
        "the expert matrices",
        "more sequences per step share the weights; a larger engine.redundant_experts spreads hot experts",
    ),
    "dispatch_combine": (
        "expert dispatch and combine",
        "compare engine.moe_backend choices, or a smaller parallel.ep",
    ),
    "all_reduce": (
        "all-reduce between tensor-parallel GPUs",
        "use data-parallel attention (parallel.attention_dp) in place of tensor-parallel",
    ),
    "cpu": ("the scheduler on the CPU", "check engine.cpu_step_us against your host; the GPUs wait for it"),
    "h2d": ("copies from host memory", "check hardware.h2d_gb_s, or keep more of the prefix on the device"),
    "idle_wait": (
        "ranks waiting for the slowest rank",
        "spread sessions by length: router.policy=least_tokens",
    ),
    "mtp_draft": ("drafting tokens", "use fewer speculation.draft_tokens at this load"),
    "overhead": (
        "operations that the host launches one by one while the GPU waits",
        "prefill in larger chunks (engine.chunked_prefill_tokens), capture the decode batches that run "
        "(engine.cuda_graph_max_bs), and check engine.cpu_launch_us against your host",
    ),
}


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing that holds the run back: its name, what it takes (0..1), and both in words."""

    name: str
    share: float
    says: str
    try_next: str


def limits(metrics: Mapping[str, Any]) -> list[Limit]:
    """All limits of a METRICS tree, most urgent first; never empty if anything ran."""
    found = (
        _failed(metrics),
        _waiting(metrics),
        _lost(metrics),
        _skew(metrics),
        _idle(metrics),
        _step(metrics),
    )
    return [limit for limit in found if limit is not None]


def _failed(metrics: Mapping[str, Any]) -> Limit | None:
    calls = metrics["calls"]
    failed = calls["rejected"] + calls["aborted"]
    if not failed:
        return None
    share = failed / calls["injected"]
    return Limit(
        "failed_calls",
        share,
        f"{failed:,} of {calls['injected']:,} calls were refused or cut off: "
        "they do not fit in the KV cache of a rank",
        "give a rank more KV cache (engine.mem_fraction, more GPUs per rank), or cap the context with "
        "model.max_context_tokens",
    )


def _waiting(metrics: Mapping[str, Any]) -> Limit | None:
    ttft = metrics["ttft_ms"]["all"]
    total_s = ttft["count"] * ttft.get("mean", 0.0) / 1e3
    waited = {
        reason: _beyond_batching(reason, entry, metrics) for reason, entry in metrics["blocked"].items()
    }
    if not waited or total_s <= 0.0:
        return None
    # Ties go to the name, so that equal runs say the same.
    reason = min(waited, key=lambda name: (-waited[name], name))
    share = min(waited[reason] / total_s, 1.0)
    if share < WAIT_SHARE:
        return None
    short, try_next = WAITS.get(reason, (reason.replace("_", " "), "see the table of blocked admissions"))
    return Limit(
        f"waiting_{reason}",
        share,
        f"calls spend {share:.0%} of their time to first token waiting for {short}",
        try_next,
    )


def _beyond_batching(reason: str, entry: Mapping[str, float], metrics: Mapping[str, Any]) -> float:
    """Seconds waited for a resource. Up to two steps in the queue are how batches form, not a shortage."""
    if reason != "queue":
        return entry["time_s"]
    steps_ms = [step["p95"] for step in metrics["step_ms"].values() if step["count"]]
    return max(0.0, entry["time_s"] - 2.0 * entry["calls"] * max(steps_ms, default=0.0) / 1e3)


def _lost(metrics: Mapping[str, Any]) -> Limit | None:
    hit, prompt = metrics["hit"], metrics["tokens"]["prompt"]
    if not prompt:
        return None
    share = hit["lost_tokens"] / prompt
    if share < LOST_SHARE:
        return None
    again = f"{share:.0%} of prompt tokens are computed again although an endless cache would have them"
    if hit["lost_swa_tokens"] > 0.5 * hit["lost_tokens"]:
        return Limit(
            "lost_swa_tails",
            share,
            f"{again}, most of them because their sliding-window tails were evicted",
            "give windows more of the memory (engine.swa_full_ratio, engine.swa_tokens_per_rank), or use "
            "engine.swa_veto=recompute_window",
        )
    if hit["lost_moved_tokens"] > 0.5 * hit["lost_tokens"]:
        return Limit(
            "lost_to_routing",
            share,
            f"{again}, most of them because the call went to another rank than the one that has its prefix",
            "keep sessions where their prefix is: router.policy=sticky or cache_aware",
        )
    return Limit(
        "lost_to_eviction",
        share,
        f"{again}, most of them because they were evicted",
        "give the cache more memory (engine.mem_fraction, more GPUs), or serve fewer sessions at once",
    )


def _skew(metrics: Mapping[str, Any]) -> Limit | None:
    work = [rank["attention_s"] for rank in metrics["ranks"]]
    mean = sum(work) / len(work) if work else 0.0
    if mean <= 0.0 or max(work) / mean < SKEW:
        return None
    skew = max(work) / mean
    return Limit(
        "rank_skew",
        1.0 - 1.0 / skew,
        f"the busiest rank does {skew:.2f} times the mean attention work; all wait for it in every step",
        "balance by length: router.policy=least_tokens, or a lower router.load_factor",
    )


def _idle(metrics: Mapping[str, Any]) -> Limit | None:
    idle = metrics["cost"].get("idle_share", 0.0)
    if idle < IDLE_SHARE:
        return None
    return Limit(
        "idle_gpus",
        idle,
        f"the GPUs are idle {idle:.0%} of the time: tools and people are slower than they are",
        "serve more sessions with the same GPUs (--sessions), or use fewer GPUs",
    )


def _step(metrics: Mapping[str, Any]) -> Limit | None:
    parts = metrics["parts_s"]
    total = sum(parts.values())
    if total <= 0.0:
        return None
    part = min(parts, key=lambda name: (-parts[name], name))
    share = parts[part] / total
    what, try_next = PARTS_TRY.get(
        part, (part.replace("_", " "), "compare another number of GPUs per replica, or another GPU")
    )
    return Limit(f"step_{part}", share, f"{share:.0%} of step time is {what}, the largest part", try_next)
