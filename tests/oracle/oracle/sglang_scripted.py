"""The scheduler object of the simulator's adapter (`v4sim.engine.native.sglang_loop`) under a script.

Both sides of `native_sglang` and every recorded decision run on this object: SGLang's scheduler without its
processes and weights. Added here: a script's options in the adapter's words, and its evictions.

Import `oracle.absent` before this module.
"""

from __future__ import annotations

from collections.abc import Callable

from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.mem_cache.base_prefix_cache import EvictParams

from oracle.script import Script
from v4sim.engine.native.sglang_engine import Options
from v4sim.engine.native.sglang_loop import Loop

_CONTEXT = 1 << 15


def options_of(script: Script) -> Options:
    """One rank as the script wants it; drafts are V4's MTP."""
    options = script.options
    drafts = options.get("draft_tokens", 0)
    return Options(
        page_tokens=options["page_tokens"],
        window_tokens=options["window_tokens"],
        kv_tokens=options["kv_tokens"],
        swa_tokens=options["swa_tokens"],
        context_tokens=_CONTEXT,
        max_running=options["slots"],
        chunk_tokens=options["chunk_tokens"],
        max_prefill_tokens=options["max_prefill_tokens"],
        conservativeness=options["conservativeness"],
        clip_max_new_tokens=options["clip_max_new_tokens"],
        prefill_max_requests=options.get("prefill_max_requests"),
        prefill_decode_interval=options.get("prefill_decode_interval", 0),
        schedule_policy=options.get("schedule_policy", "fcfs"),
        retraction_policy=options.get("retraction_policy", "default"),
        overlap=options.get("overlap", False),
        mixed_chunk=options.get("mixed_chunk", False),
        prefix_cache=options.get("prefix_cache", True),
        by_priority=options.get("priority", False),
        draft_tokens=drafts,
        bigram_keys=drafts > 0,
    )


class ScriptedLoop(Loop):
    """One rank's scheduler, from whose tree the script evicts. `step` says which one is being chosen."""

    def __init__(self, script: Script, step: Callable[[], int]) -> None:
        self._step = step
        self._evictions = list(script.options.get("evictions", ()))
        super().__init__(options_of(script))

    def _should_defer_prefill(self, running_batch: ScheduleBatch) -> bool:
        """The chunk in progress is published by now, and nothing is allocated yet."""
        while self._evictions and self._evictions[0][0] <= self._step():
            _, history, windows = self._evictions.pop(0)
            self.tree_cache.evict(EvictParams(num_tokens=history, swa_num_tokens=windows))
        return bool(super()._should_defer_prefill(running_batch))
