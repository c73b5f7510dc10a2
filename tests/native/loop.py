"""Stands for SGLang's own objects (`sglang_loop.Loop`) where none is installed.

Prompts go first, one whole prompt a step; everybody else decodes. Nothing is decided well here; `make oracle`
has the real ones.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from v4sim.engine.native.sglang_engine import Options


def sglang_options(**how: Any) -> Options:
    chosen: dict[str, Any] = {
        "page_tokens": 256,
        "window_tokens": 128,
        "kv_tokens": 1 << 16,
        "swa_tokens": 1 << 15,
        "context_tokens": 1 << 16,
        "max_running": 8,
        "chunk_tokens": 4096,
        "max_prefill_tokens": 16384,
        "conservativeness": 0.3,
        "clip_max_new_tokens": 4096,
        "prefill_max_requests": None,
        "prefill_decode_interval": 0,
        "schedule_policy": "fcfs",
        "retraction_policy": "default",
        "overlap": True,
        "mixed_chunk": False,
        "prefix_cache": True,
        "by_priority": False,
        "draft_tokens": 0,
        "bigram_keys": False,
    }
    return Options(**(chosen | how))


@dataclass(eq=False)
class Req:
    """The attributes of SGLang's requests that are read."""

    rid: str
    origin_input_ids: array[int]
    output_ids: array[int] = field(default_factory=lambda: array("q"))
    eos_token_ids: set[int] | None = None
    to_finish: object = None
    is_retracted: bool = False
    inflight_middle_chunks: int = 0
    swa_branching_seqlen: int | None = None
    done: bool = False

    def finished(self) -> bool:
        return self.done


class Loop:
    """One queue, and everybody who runs decodes. `calls` notes what the adapter wants of it."""

    def __init__(self, options: Options) -> None:
        self.calls: list[str] = []
        self.waiting_queue: list[Req] = []
        self.running: list[Req] = []
        self.chunked_req: Req | None = None
        self.result_queue: deque[Any] = deque()
        self.retracted: list[str] = []
        self.aborted: list[str] = []
        self.prefill_decode_interval = options.prefill_decode_interval
        self._prefill_decode_interval_remaining = 0
        self.new_token_ratio_tracker = SimpleNamespace(reset=lambda: self.calls.append("reset"))
        self.token_to_kv_pool_allocator = SimpleNamespace(
            full_available_size=lambda: 40_000, swa_available_size=lambda: 9_000, size_swa=options.swa_tokens
        )
        self.tree_cache = SimpleNamespace(
            full_evictable_size=lambda: 20_000, swa_evictable_size=lambda: 1_000
        )

    def enter(self, name: str, prompt: array[int], max_new_tokens: int, priority: int) -> Req:
        self.calls.append(f"enter {name} {len(prompt)} {max_new_tokens} {priority}")
        self.waiting_queue.append(Req(name, prompt))
        return self.waiting_queue[-1]

    def give_up(self, name: str) -> None:
        self.calls.append(f"give up {name}")

    def propose(self) -> Any:
        if not self.waiting_queue:
            return None
        self.running.append(self.waiting_queue.pop(0))
        return self._batch(self.running[-1:], extend=True)

    def decode(self) -> Any:
        return self._batch([request for request in self.running if not request.done], extend=False)

    def _batch(self, requests: list[Req], *, extend: bool) -> Any:
        if not requests:
            return None
        batch = SimpleNamespace(
            reqs=requests,
            prefix_lens=[256] * len(requests),
            extend_lens=[len(request.origin_input_ids) - 256 for request in requests],
            decoding_reqs=None,
            forward_mode=SimpleNamespace(is_extend=lambda: extend),
        )
        self.result_queue.append((batch, self.chunked_req))
        return batch

    def append(self, request: Req, tokens: array[int], *, computed: bool, prefilled: bool) -> bool:
        self.calls.append(f"append {request.rid} {len(tokens)} {computed:d}{prefilled:d}")
        request.output_ids.extend(tokens)
        request.done = bool(request.to_finish) or tokens[-1] in (request.eos_token_ids or ())
        return request.done
