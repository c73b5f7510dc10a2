"""Launch flags and environment variables of the engines, as options of a deployment.

Only flags that change a modelled option are read; every other one is named as not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_VALUES: dict[str, tuple[str, type]] = {
    "cuda-graph-max-bs": ("cuda_graph_max_bs", int),
    "chunked-prefill-size": ("chunked_prefill_tokens", int),
    "max-prefill-tokens": ("max_prefill_tokens", int),
    "max-running-requests": ("max_running", int),
    "mem-fraction-static": ("mem_fraction", float),
    "swa-full-tokens-ratio": ("swa_full_ratio", float),
    "schedule-policy": ("schedule_policy", str),
    "schedule-conservativeness": ("conservativeness", float),
    "prefill-decode-interval": ("prefill_decode_interval", int),
    "stream-interval": ("stream_interval", int),
    "ep-num-redundant-experts": ("redundant_experts", int),
    "max-num-batched-tokens": ("max_batched_tokens", int),
    "max-num-seqs": ("max_num_seqs", int),
    "gpu-memory-utilization": ("mem_fraction", float),
    "long-prefill-token-threshold": ("long_prefill_token_threshold", int),
    "prefill-schedule-interval": ("prefill_schedule_interval", int),
    "sglang_deepep_num_max_dispatch_tokens_per_rank": ("dispatch_tokens_per_rank", int),
}
_SWITCHES: dict[str, tuple[str, Any]] = {
    "enable-mixed-chunk": ("mixed_chunk", True),
    "disable-radix-cache": ("prefix_cache", False),
    "no-enable-prefix-caching": ("prefix_cache", False),
    "disable-overlap-schedule": ("overlap", False),
    "async-scheduling": ("async_scheduling", True),
    "no-async-scheduling": ("async_scheduling", False),
}
_FLAG = re.compile(r"(?:--)?([A-Za-z][\w-]*)(?:[ =](.+))?")


def apply_flags(flags: Iterable[str], engine: dict[str, Any], assumed: list[str]) -> None:
    """Set the options that the flags name in `engine`; add what is not read to `assumed`."""
    for text in flags:
        match = _FLAG.fullmatch(text.strip())
        name = match[1].lower() if match else ""
        value = match[2] if match else None
        if name in _SWITCHES and value is None:
            key, setting = _SWITCHES[name]
            engine[key] = setting
        elif name in _VALUES and value is not None:
            key, kind = _VALUES[name]
            try:
                engine[key] = kind(value.strip())
            except ValueError:
                assumed.append(f"nothing for the flag {text!r}: its value cannot be read")
        else:
            assumed.append(f"no effect of the flag {text!r}")
