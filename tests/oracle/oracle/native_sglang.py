"""`python -m oracle.native_sglang [SCRIPTS]`: SGLang's own loop beside the simulator's adapter of SGLang.

What `sglang_driver` decides with token ids and a loop of its own, the adapter must decide with names from
prefix structure inside the simulator's replica loop. So many scripts of each kind.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from oracle import generate, log
from oracle.ours import TICK_NS, Watched, World
from oracle.script import Script
from v4sim.cache.legal import HitPolicy
from v4sim.cache.owner import CacheOwner
from v4sim.cache.tree import SpanTree
from v4sim.engine.base import Scheduler
from v4sim.engine.native import sglang_engine
from v4sim.engine.native.rank import NativeRank
from v4sim.prefix import PrefixIndex

PER_KIND = 17
_CONTEXT = 1 << 15


class WatchedNative(Watched, NativeRank):
    """Notes what leaves and what enters."""


class SglangWorld(World):
    """One rank under one script, driven by the installed SGLang."""

    def _engine(self, table: Any) -> tuple[Watched, Scheduler]:
        options = self.options
        chosen = _options(options)
        evictions = [tuple(eviction) for eviction in options.get("evictions", ())]
        options = self.options = {**options, "evictions": ()}  # not from a tree of ours
        loop = _evicting_loop(chosen, evictions, lambda: int(self.env.now) // TICK_NS)
        engine = sglang_engine.SglangEngine(loop, chosen, PrefixIndex(table, 1))
        owner = CacheOwner(
            SpanTree(PrefixIndex(table, chosen.page_tokens)),
            HitPolicy("strict", chosen.page_tokens, chosen.window_tokens, 1),
            kv_tokens=engine.capacity_tokens,
            swa_tokens=chosen.swa_tokens,
            request_slots=chosen.max_running,
        )
        rank = WatchedNative(0, 0, owner, engine, overhead_tokens=0, max_context_tokens=_CONTEXT)
        return rank, sglang_engine.rules(chosen)


def _options(options: dict[str, Any]) -> sglang_engine.Options:
    drafts = options.get("draft_tokens", 0)
    return sglang_engine.Options(
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


def _evicting_loop(
    chosen: sglang_engine.Options, evictions: list[tuple[int, int, int]], now: Callable[[], int]
) -> Any:
    """The adapter's loop, from whose tree a script evicts when the chunk in progress is published."""
    sglang_loop = importlib.import_module("v4sim.engine.native.sglang_loop")
    params = importlib.import_module("sglang.srt.mem_cache.base_prefix_cache").EvictParams

    class Evicting(sglang_loop.Loop):  # type: ignore[name-defined,misc]
        def _should_defer_prefill(self, running_batch: Any) -> bool:
            while evictions and evictions[0][0] <= now():
                _, history, windows = evictions.pop(0)
                self.tree_cache.evict(params(num_tokens=history, swa_num_tokens=windows))
            return bool(super()._should_defer_prefill(running_batch))

    return Evicting(chosen)


def decided(entries: list[log.Entry]) -> list[log.Entry]:
    """Without the room left, which the two sides read at other moments of a step."""
    return [entry[:2] + entry[3:] for entry in entries]


def main(per_kind: str = str(PER_KIND)) -> int:
    importlib.import_module("oracle.absent")  # before anything of an engine
    driver = importlib.import_module("oracle.sglang_driver")
    begin = time.monotonic()
    scripts: list[Script] = [
        script
        for script in generate.scripts("sglang", int(per_kind))
        if script.kind not in ("aborts", "ranks")  # no run has clients that hang up; one rank
    ]
    unlike, steps = [], 0
    for script in scripts:
        theirs = decided(driver.Loop(script).run())
        steps += len(theirs)
        if decided(SglangWorld(script).run()) != theirs:
            unlike.append(script.name)
    print(
        f"sglang {driver.VERSION}: the adapter decides like SGLang in {len(scripts) - len(unlike)} of "
        f"{len(scripts)} scripts, {steps} steps, {time.monotonic() - begin:.0f} s"
    )
    if unlike:
        print(f"unlike: {', '.join(unlike)}")
    return 1 if unlike else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
