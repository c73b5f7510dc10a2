"""Draws what a run is made of from seeded numpy: calls with a busy middle and long tails, and series."""

from __future__ import annotations

from typing import Any

import numpy as np

CLASSES = ("cold", "warm", "resume_tool", "resume_user", "fork", "rollback", "subagent")
CLASS_SHARE = (0.05, 0.03, 0.72, 0.13, 0.03, 0.015, 0.025)
NUM_RANKS = 4


def draw_calls(num_calls: int, seed: int, duration_s: float = 1800.0) -> dict[str, Any]:
    """Columns of calls.parquet: a busy middle, long-tailed prompts, cold calls slow, resumes quick."""
    rng = np.random.default_rng(seed)
    event_class = rng.choice(CLASSES, size=num_calls, p=CLASS_SHARE)
    cold = event_class == "cold"
    sent_s = np.sort(rng.beta(1.6, 1.4, num_calls)) * duration_s * 0.97
    prompt = np.clip(rng.lognormal(11.4, 0.7, num_calls), 2_000, 900_000).astype(np.int64)
    suffix = np.minimum(np.clip(rng.lognormal(6.6, 1.3, num_calls), 40, None).astype(np.int64), prompt)
    bound = np.where(cold, 0, prompt - suffix)
    lost = np.where(rng.random(num_calls) < 0.06, rng.integers(0, 20_000, num_calls), 0)
    reusable = np.maximum(bound - lost, 0) // 256 * 256
    host = np.where(rng.random(num_calls) < 0.12, reusable // 3, 0)
    storage = np.where(rng.random(num_calls) < 0.02, (reusable - host) // 4, 0)
    device = reusable - host - storage
    computed = prompt - reusable
    output = np.clip(rng.lognormal(5.5, 0.9, num_calls), 4, 8_000).astype(np.int64)

    pressure = np.sin(np.pi * sent_s / duration_s) ** 3
    wait_queue = rng.exponential(0.04 + 0.35 * pressure)
    wait_kv = np.where(rng.random(num_calls) < 0.25 * pressure, rng.exponential(1.8, num_calls), 0.0)
    wait_swa = np.where(rng.random(num_calls) < 0.04, rng.exponential(0.3, num_calls), 0.0)
    wait_budget = np.where(rng.random(num_calls) < 0.2, rng.exponential(0.12, num_calls), 0.0)
    queued_s = sent_s + 0.002
    admit_s = queued_s + wait_queue + wait_kv + wait_swa + wait_budget
    first_s = admit_s + 0.03 + computed / 60_000
    last_s = first_s + output * rng.uniform(0.008, 0.019, num_calls)
    done = np.where(rng.random(num_calls) < 0.004, "aborted", "completed")

    def ns(seconds: np.ndarray) -> np.ndarray:
        return np.rint(seconds * 1e9).astype(np.int64)

    return {
        "row": np.arange(num_calls),
        "session": rng.integers(0, 48, num_calls),
        "instance": np.zeros(num_calls, dtype=np.int64),
        "turn": np.arange(num_calls) % 60,
        "replica": np.zeros(num_calls, dtype=np.int64),
        "rank": rng.choice(NUM_RANKS, size=num_calls, p=(0.31, 0.25, 0.23, 0.21)),
        "event_class": event_class,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "hit_tokens": device,
        "hit_host_tokens": host,
        "hit_storage_tokens": storage,
        "computed_tokens": computed,
        "recomputed_tokens": np.where(rng.random(num_calls) < 0.01, 4096, 0),
        "bound_tokens": bound,
        "lost_swa_tokens": lost,
        "ready_ns": ns(sent_s - np.minimum(sent_s, 2.0)),
        "sent_ns": ns(sent_s),
        "queued_ns": ns(queued_s),
        "admit_ns": ns(admit_s),
        "first_token_ns": ns(first_s),
        "first_seen_ns": ns(first_s),
        "last_token_ns": ns(last_s),
        "done": done,
        "wait_queue_ns": ns(wait_queue),
        "wait_kv_ns": ns(wait_kv),
        "wait_swa_ns": ns(wait_swa),
        "wait_slots_ns": np.zeros(num_calls, dtype=np.int64),
        "wait_budget_ns": ns(wait_budget),
        "gpu_share_ns": ns((last_s - first_s) * 0.2 + computed / 90_000),
    }


def draw_series(seed: int, duration_s: float, num_ranks: int, num_samples: int = 900) -> dict[str, Any]:
    rng = np.random.default_rng(seed + 1)
    t_s = np.linspace(0, duration_s, num_samples)
    wave = np.sin(np.pi * t_s / duration_s)

    def per_rank(top: float, noise: float) -> list[list[int]]:
        """[sample][rank], as the run writer has it."""
        rows = [
            np.clip(wave * top * (1 - 0.06 * rank) + rng.normal(0, noise, num_samples), 0, top)
            for rank in range(num_ranks)
        ]
        samples: list[list[int]] = np.rint(np.stack(rows, axis=1)).astype(int).tolist()
        return samples

    return {
        "t_ns": [round(value * 1e9) for value in t_s.tolist()],
        "kv_used": per_rank(3_800_000, 60_000),
        "kv_resident": per_rank(3_100_000, 40_000),
        "swa_used": per_rank(380_000, 9_000),
        "running": per_rank(9, 0.8),
        "queued": per_rank(4, 0.7),
    }


def resource(name: str, title: str, gain: float, sure: bool, **other: Any) -> dict[str, Any]:
    value = 2000.0 * (1 - gain)
    entry = {
        "name": name,
        "title": title,
        "change": "10 to 11 of them",
        "value": value,
        "gain": gain,
        "difference": value - 2000.0,
        "difference_ci": [value - 2100.0, value - 1950.0],
        "better_share": 0.995 if sure else 0.6,
        "sure": sure,
    }
    return entry | other


def draw_limiter(sure: bool = True) -> dict[str, Any]:
    return {
        "objective": "ttft_warm_p95",
        "says": "p95 time to first token of calls that append",
        "unit": "ms",
        "less_is_better": True,
        "step": 0.1,
        "repeats": 3,
        "calls": 1234,
        "value": 2000.0,
        "limiter": "kv_pool" if sure else None,
        "resources": [
            resource("kv_pool", "KV pool", 0.25, sure),
            resource("slots", "Request slots", 0.0, False, difference_ci=None, better_share=None),
            resource("chunk", "Prefill tokens of a step", -0.05, False),
        ],
        "caution": "the p95 of 20 calls a draw is the word of 1 of them" if not sure else None,
        "unasked": [{"name": "swa_pool", "title": "Sliding-window pool", "reason": "there is none <here>"}],
    }
