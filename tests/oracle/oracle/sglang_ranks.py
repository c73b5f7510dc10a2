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
from oracle.script import Clock, Script
from oracle.sglang_driver import Rank
from oracle.tokens import Texts


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


class GatheringRank(Rank):
    """A rank that waits for the others wherever they agree."""

    def __init__(self, script: Script, clock: Clock, texts: Texts, gather: Gather, index: int) -> None:
        super().__init__(script, clock, texts)
        self._gather, self._index = gather, index

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
        self._gather.enter(self._index)
        try:
            return super().choose(now)
        except threading.BrokenBarrierError:
            raise
        except BaseException:
            self._gather.break_off()
            raise


class Loop(sglang_driver.Loop):
    """All ranks under one script."""

    def _ranks(self, texts: Texts) -> list[Rank]:
        count = self.script.options["ranks"]
        gather = Gather(count)
        _stand_in(gather, count)
        return [GatheringRank(self.script, self.clock, texts, gather, index) for index in range(count)]

    def run(self, most_steps: int = 100_000) -> list[Entry]:
        with ThreadPoolExecutor(len(self.ranks)) as self._threads:
            return super().run(most_steps)

    def _choose(self, now: int) -> list[ScheduleBatch] | None:
        """A batch for every rank or for none, which the gather sees to; one entry for all."""
        chosen = [self._threads.submit(rank.choose, now) for rank in self.ranks]
        failed = [error for each in chosen if (error := each.exception()) is not None]
        if failed:
            raise next((e for e in failed if not isinstance(e, threading.BrokenBarrierError)), failed[0])
        batches = [each.result() for each in chosen]
        entries = [rank.entry for rank in self.ranks if rank.entry is not None]
        if entries:
            rows, admitted, out = ([each for entry in entries for each in entry[at]] for at in (1, 3, 4))
            self.log.append([now, sorted(rows), self._free(), admitted, out])
        assert None not in batches or not any(batches)
        return None if None in batches else batches

    def _give_up(self, now: int) -> bool:
        dropped = False
        for rank in self.ranks:
            if rank.drop_head(now):
                assert rank.entry is not None
                self.log.append([*rank.entry[:2], self._free(), *rank.entry[3:]])
                dropped = True
        return dropped

    def _free(self) -> list[int]:
        return [rank.free() for rank in self.ranks]


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
