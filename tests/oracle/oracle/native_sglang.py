"""`python -m oracle.native_sglang [SCRIPTS]`: SGLang's own loop beside the simulator's adapter of SGLang.

What `sglang_driver` decides with token ids and a loop of its own, the adapter must decide with names from
prefix structure inside the simulator's replica loop. So many scripts of each kind. Both are made by the
adapter's `Loop`: what is wrong there, only the comparison with our own rules can see.
"""

from __future__ import annotations

import importlib
import sys
import time
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


class WatchedNative(Watched, NativeRank):
    """Notes what leaves and what enters."""


class SglangWorld(World):
    """One rank under one script, driven by the installed SGLang."""

    def _engine(self, table: Any) -> tuple[Watched, Scheduler]:
        self.options = {**self.options, "evictions": ()}  # not from a tree of ours
        scripted = importlib.import_module("oracle.sglang_scripted")
        chosen = scripted.options_of(self.script)
        loop = scripted.ScriptedLoop(self.script, lambda: int(self.env.now) // TICK_NS)
        engine = sglang_engine.SglangEngine(loop, chosen, PrefixIndex(table, 1))
        owner = CacheOwner(
            SpanTree(PrefixIndex(table, chosen.page_tokens)),
            HitPolicy("strict", chosen.page_tokens, chosen.window_tokens, 1),
            kv_tokens=engine.capacity_tokens,
            swa_tokens=chosen.swa_tokens,
            request_slots=chosen.max_running,
        )
        rank = WatchedNative(0, 0, owner, engine, overhead_tokens=0, max_context_tokens=chosen.context_tokens)
        return rank, sglang_engine.rules(chosen)


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
