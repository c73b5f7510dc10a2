"""Several DP ranks of SGLang in lockstep: one scheduler a rank, and what they agree on before each step.

Theirs, beside what `sglang_driver` says: `SchedulerDPAttnAdapter` with its gather of every rank's batch
(who extends, who has tokens), the idle batches, the prefills that stall the decodes of all where drafts
are on, the cadence that all keep, the prefill delayer with its own gather.

Emulated here: the two collectives (each rank chooses in a thread of its own and waits for the others), and
that all ranks' loops go round together, which the collectives force.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.managers import prefill_delayer
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.managers.scheduler_components import dp_attn

from oracle import sglang_driver
from oracle.log import Entry
from oracle.script import Script


class Gather:
    """All-gather among threads: everybody's row in order of rank."""

    def __init__(self, ranks: int) -> None:
        self._rows: list[Any] = [None] * ranks
        self._barrier = threading.Barrier(ranks)
        self._mine = threading.local()

    def enter(self, rank: int) -> None:
        self._mine.rank = rank

    def break_off(self) -> None:
        """One rank has failed: nobody waits for it."""
        self._barrier.abort()

    def exchange(self, everybody: torch.Tensor, row: torch.Tensor, group: Any = None) -> None:
        self._rows[self._mine.rank] = row.clone().flatten()
        self._barrier.wait(60)
        everybody.copy_(torch.cat(self._rows))
        self._barrier.wait(60)


class RankLoop(sglang_driver.Loop):
    """One rank. Clock and texts are those of all."""

    def __init__(self, script: Script, gather: Gather, index: int) -> None:
        super().__init__(script)
        self.index = index
        self._gather = gather

    def _state(self) -> None:
        super()._state()
        self.require_mlp_sync = True
        runner = SimpleNamespace(
            attn_backend=SimpleNamespace(folds_encoder_swa_replay=False),
            prefill_aware_swa=False,
            prefill_cuda_graph_runner=None,
            spec_algorithm=self.spec_algorithm,
            model_config=self.model_config,
        )
        self.tp_worker = SimpleNamespace(model_runner=runner)
        self.dp_attn_adapter = dp_attn.SchedulerDPAttnAdapter(
            model_runner=runner,
            req_to_token_pool=self.req_to_token_pool,
            token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
            tree_cache=self.tree_cache,
            offload_tags=set(),
            model_config=self.model_config,
            enable_overlap=self.enable_overlap,
            spec_algorithm=self.spec_algorithm,
            get_require_mlp_sync=lambda: True,
        )

    def choose(self, now: int) -> ScheduleBatch | None:
        self._gather.enter(self.index)
        try:
            return self._choose(now)
        except threading.BrokenBarrierError:
            raise
        except BaseException:
            self._gather.break_off()
            raise

    def last_entry(self) -> Entry | None:
        """What `_choose` has just logged."""
        return self.log.pop() if self.log else None


class Loop:
    """All ranks under one script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        count = script.options["ranks"]
        gather = Gather(count)
        _stand_in(gather, count)
        self.ranks = [RankLoop(script, gather, index) for index in range(count)]
        self.clock = self.ranks[0].clock
        for rank in self.ranks:
            rank.clock, rank.texts = self.clock, self.ranks[0].texts
        self.late = self.ranks[0].late
        self.log: list[Entry] = []

    def run(self, most_steps: int = 100_000) -> list[Entry]:
        with ThreadPoolExecutor(len(self.ranks)) as self._threads:
            return self._run(most_steps)

    def _run(self, most_steps: int) -> list[Entry]:
        now, busy, ranks = 0, False, self.ranks
        while len(self.log) < most_steps:
            self._receive(now - 1 if self.late and busy else now)
            batches = self._choose(now)
            if batches is None and ranks[0].result_queue:
                for rank in ranks:
                    rank._process()
                    rank.last_batch = None
                self._receive(now)
                batches = self._choose(now)
            rounds = ranks[0].prefill_decode_interval + self.script.options.get("delayer_passes", 0)
            while batches is None and rounds and any(r.chunked_req or r.waiting_queue for r in ranks):
                rounds -= 1
                batches = self._choose(now)
            if batches is None:
                for rank in ranks:
                    if not rank.waiting_queue and rank.chunked_req is None:
                        rank.new_token_ratio_tracker.reset()
                if self._give_up(now):
                    busy = False
                    continue
                due = self.clock.next_at
                if due is None:
                    return self.log
                now, busy = max(due, now), False
                continue
            for rank, batch in zip(ranks, batches, strict=True):
                rank.result_queue.append((batch.copy(), rank._tokens(batch), now))
                if not self.late or len(rank.result_queue) > 1:
                    rank._process()
                rank.last_batch = batch
            now, busy = now + 1, True
        raise RuntimeError(f"{self.script.name}: more than {most_steps} steps")

    def _receive(self, upto: int) -> None:
        arrived = self.clock.take(upto)
        for rank in self.ranks:
            rank.enqueue([n for n in arrived if self.script.calls[n].rank == rank.index])

    def _choose(self, now: int) -> list[ScheduleBatch] | None:
        """A batch for every rank or for none, which the gather sees to; one entry for all."""
        chosen = [self._threads.submit(rank.choose, now) for rank in self.ranks]
        failed = [error for each in chosen if (error := each.exception()) is not None]
        if failed:
            raise next((e for e in failed if not isinstance(e, threading.BrokenBarrierError)), failed[0])
        batches = [each.result() for each in chosen]
        entries = [rank.last_entry() for rank in self.ranks]
        if any(entries):
            free = [rank._free() for rank in self.ranks]
            parts: list[list[Any]] = [[], [], []]
            for entry in entries:
                for part, own in zip(parts, (entry[1], entry[3], entry[4]) if entry else (), strict=False):
                    part += own
            rows, admitted, out = parts
            self.log.append([now, sorted(rows), free, admitted, out])
        assert None not in batches or not any(batches)
        return None if None in batches else batches

    def _give_up(self, now: int) -> bool:
        gave = False
        for rank in self.ranks:
            if rank._give_up(now):
                entry = rank.last_entry()
                assert entry is not None
                entry[2] = [other._free() for other in self.ranks]
                self.log.append(entry)
                gave = True
        return gave


def _stand_in(gather: Gather, count: int) -> None:
    """What the agreement reads of the group, where there are no processes."""
    group = SimpleNamespace(cpu_group=None, device_group=None, device="cpu")
    group.active_ranks = group.active_ranks_cpu = torch.ones(count, dtype=torch.int64)
    parallel = SimpleNamespace(
        num_dp_ranks=count, attn_tp_size=1, attn_cp_size=1, dwdp_size=1, tp_group=group, attn_dp_enabled=True
    )
    dp_attn.get_parallel = prefill_delayer.get_parallel = lambda: parallel
    dp_attn.world_dp_gather_enabled = lambda: False
    dp_attn.require_mlp_tp_gather = lambda **_: True
    dp_attn.check_cuda_graph_backend = lambda *_: False  # DeepSeek-V4 prefills without graphs
    dp_attn.exchange_sync_rows = gather.exchange
    prefill_delayer.all_gather_single = gather.exchange
