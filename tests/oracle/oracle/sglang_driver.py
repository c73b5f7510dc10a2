"""SGLang's own scheduler loop, admission and radix cache, driven step by step on the CPU.

Theirs: `Scheduler.get_next_batch_to_run` with everything it calls (queue policy, `PrefillAdder`, prefill
budget, new-token-ratio tracker, `ScheduleBatch` with its allocation, retraction and filtering), the
unified radix tree, the paged allocator. The scheduler object is made without its constructor, which
wants processes and weights, and is given what those methods read.

Emulated here: the event loop (with overlap one batch ahead), receiving requests, and the processing of
results as far as it decides anything: append the tokens (drafts accepted as the script says), see whether
the answer ends, publish a prompt whose prefill is complete, release a call that ended. Import
`oracle.absent` before this module.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from types import SimpleNamespace
from typing import Any

import sglang
import torch
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.environ import envs
from sglang.srt.managers.io_struct import AbortReq
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.schedule_policy import SchedulePolicy
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import NewTokenRatioTracker
from sglang.srt.mem_cache import allocation
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from oracle.log import Entry
from oracle.script import Clock, Script, accepted
from oracle.tokens import EOS, Texts

VERSION = sglang.__version__
torch.set_num_threads(1)  # small tensors: more threads only wait for each other
_CONTEXT = 1 << 15


def _write_rows(
    rows: torch.Tensor,
    table: torch.Tensor,
    begin: torch.Tensor,
    end: torch.Tensor,
    locs: torch.Tensor,
    _: int,
) -> None:
    """What a kernel does on a GPU: the new places of each call into its row."""
    done = 0
    for row, start, stop in zip(rows.tolist(), begin.tolist(), end.tolist(), strict=True):
        table[row, start:stop] = locs[done : done + stop - start].to(table.dtype)
        done += stop - start


allocation.assign_req_to_token_pool_func = _write_rows


def _name(number: int) -> str:
    """SGLang ends every request whose name begins with the one to be ended."""
    return f"{number:05d}"


class _Nothing:
    """Answers every call with nothing: metrics, tracing, beams."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> int:
        return 0


class Loop(Scheduler):
    """One scheduler under one script."""

    def __init__(self, script: Script) -> None:
        logging.disable(logging.WARNING)
        self.script = script
        self.options = options = script.options
        self.late = bool(options.get("overlap", False))
        self.drafts = options.get("draft_tokens", 0)
        self.texts = Texts(script, own_ends=True)
        self.clock = Clock(script)
        self.log: list[Entry] = []
        self.evictions = list(options.get("evictions", ()))
        self.reqs: dict[int, Req] = {}
        self.emitted: dict[int, int] = {}
        self.out: list[int] = []
        self._inside, self._queued = set[str](), 0
        self.page_size = options["page_tokens"]
        self._arguments()
        self._pools()
        self._state()

    def _arguments(self) -> None:
        options = self.options
        args = ServerArgs(
            model_path="dummy",
            page_size=self.page_size,
            schedule_policy=options.get("schedule_policy", "fcfs"),
            schedule_conservativeness=options["conservativeness"],
            chunked_prefill_size=options["chunk_tokens"] or -1,
            max_prefill_tokens=options["max_prefill_tokens"],
            prefill_max_requests=options.get("prefill_max_requests"),
            retraction_policy=options.get("retraction_policy", "default"),
            enable_priority_scheduling=bool(options.get("priority")),
            disable_overlap_schedule=not self.late,
            attention_backend="torch_native",
            **self._speculation(),
            device="cpu",
            pp_max_micro_batch_size=options["slots"],
        )
        set_global_server_args_for_scheduler(args)
        import sglang.srt.managers.schedule_policy as policy

        policy.CLIP_MAX_NEW_TOKENS = options["clip_max_new_tokens"]
        # In V4 the window and the interval at which a call drops what has left it are both 128 tokens.
        envs.SGLANG_SWA_EVICTION_INTERVAL.set(options["window_tokens"])

    def _speculation(self) -> dict[str, Any]:
        """V4's MTP: one chain of drafts."""
        if not self.drafts:
            return {}
        return {
            "speculative_algorithm": "EAGLE",
            "speculative_num_steps": self.drafts,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": self.drafts + 1,
        }

    def _pools(self) -> None:
        options, page = self.options, self.page_size
        window = options.get("window_tokens")
        size = options["kv_tokens"]
        shape = {"page_size": page, "dtype": torch.float16, "head_num": 1, "head_dim": 1, "device": "cpu"}
        self.req_to_token_pool = ReqToTokenPool(
            size=options["slots"], max_context_len=_CONTEXT, device="cpu", enable_memory_saver=False
        )
        common = {"page_size": page, "dtype": torch.float16, "device": "cpu", "need_sort": False}
        if window:
            pool = SWAKVPool(
                size=size,
                size_swa=options["swa_tokens"],
                swa_attention_layer_ids=[1],
                full_attention_layer_ids=[0],
                **shape,
            )
            allocator = SWATokenToKVPoolAllocator(
                size=size, size_swa=options["swa_tokens"], kvcache=pool, **common
            )
        else:
            pool = MHATokenToKVPool(size=size, layer_num=1, enable_memory_saver=False, **shape)
            allocator = PagedTokenToKVPoolAllocator(size, kvcache=pool, **common)
        self.token_to_kv_pool_allocator = allocator
        self.tree_cache = UnifiedRadixCache(
            params=CacheInitParams(
                disable=not options.get("prefix_cache", True),
                req_to_token_pool=self.req_to_token_pool,
                token_to_kv_pool_allocator=allocator,
                page_size=page,
                is_eagle=bool(self.drafts),
                sliding_window_size=window,
                tree_components=(ComponentType.FULL, ComponentType.SWA) if window else (ComponentType.FULL,),
                chunked_prefill_size=options["chunk_tokens"],
            )
        )

    def _state(self) -> None:
        options = self.options
        nothing = _Nothing()
        self.dllm_config = self.chunked_req = self.dynamic_chunk_sizer = self.prefill_delayer = None
        self.min_free_slots_delayer = self.decode_offload_manager = self.hisparse_coordinator = None
        self.lora_drainer = self.truncation_align_size = self.scheduler_stage_metrics = None
        self.enable_hisparse = self.enable_priority_preemption = self.enable_lora = False
        self.enable_hicache_storage = self.enable_lmcache = self.enable_hierarchical_cache = False
        self.enable_unified_cache_external_linker = self.require_mlp_sync = False
        self.enable_priority_scheduling = bool(options.get("priority"))
        self.is_hybrid_swa = True  # V4 is: "batch is full" is forgotten every pass
        self.enable_overlap = self.enable_skip_finishing_decode = self.late
        self.spec_algorithm = SpeculativeAlgorithm.EAGLE if self.drafts else SpeculativeAlgorithm.NONE
        self.disaggregation_mode = DisaggregationMode.NULL
        self.prefill_decode_interval = options.get("prefill_decode_interval", 0)
        self._prefill_decode_interval_remaining = 0
        self.prefill_decode_interval_min_bs = 0
        self.priority_scheduling_preemption_threshold = 0
        self.max_prefill_bs = self.processed_tokens_counter = self.forward_ct = 0
        self.max_prefill_tokens = options["max_prefill_tokens"]
        self.chunked_prefill_size = options["chunk_tokens"]
        self.max_running_requests = options["slots"]
        self.is_mixed_chunk = options.get("mixed_chunk", False)
        self.device = "cpu"
        self.waiting_queue: list[Req] = []
        self.result_queue: deque[Any] = deque()
        self.new_token_ratio_tracker = NewTokenRatioTracker.from_config()
        self.model_config = SimpleNamespace(
            is_encoder_decoder=False, vocab_size=1024, hf_config=None, is_multimodal=False, hidden_size=1
        )
        self.policy = SchedulePolicy(
            options.get("schedule_policy", "fcfs"),
            self.tree_cache,
            False,
            self.enable_priority_scheduling,
            False,
        )
        passing = lambda batch, *args, **kwargs: batch  # noqa: E731
        self.dp_attn_adapter = SimpleNamespace(
            maybe_prepare_mlp_sync_batch=passing, maybe_convert_decode_to_extend=passing
        )
        self.ngram_embedding_manager = SimpleNamespace(prepare_for_forward=passing)
        self.grammar_manager = SimpleNamespace(
            has_waiting_grammars=lambda: False, abort_requests=lambda request: None
        )
        self.mm_receiver = self._pending_chunked_abort_req = None
        self.enable_continuous_input_polling, self.send_abort_output = False, nothing
        self.beam_coordinator = self.metrics_reporter = self.load_inquirer = nothing
        self.tp_worker = SimpleNamespace(
            model_runner=SimpleNamespace(attn_backend=SimpleNamespace(), prefill_aware_swa=False)
        )
        self.running_batch = ScheduleBatch(reqs=[], batch_is_full=False)
        self.last_batch: ScheduleBatch | None = None

    def _process_hicache_events(self) -> None:
        return

    def _should_defer_prefill(self, running_batch: ScheduleBatch) -> bool:
        """The chunk in progress is published by now, and nothing is allocated yet."""
        while self.evictions and self.evictions[0][0] <= self.now:
            _, history, windows = self.evictions.pop(0)
            self.tree_cache.evict(EvictParams(num_tokens=history, swa_num_tokens=windows))
        return bool(super()._should_defer_prefill(running_batch))

    def _add_request_to_queue(self, req: Req, is_retracted: bool = False) -> None:
        if is_retracted:
            self.out.append(int(req.rid))
        self._queued += 1
        req.time_stats.wait_queue_entry_time = float(self._queued)
        self.waiting_queue.append(req)

    # -- the loop -------------------------------------------------------------------------------

    def run(self, most_steps: int = 100_000) -> list[Entry]:
        now, busy = 0, False
        while len(self.log) < most_steps:
            self._receive(now - 1 if self.late and busy else now)
            batch = self._choose(now)
            if batch is None and self.result_queue:
                # The loop spins: results are processed, then it chooses again, at the same instant.
                self._process()
                self._receive(now)
                self.last_batch = None
                batch = self._choose(now)
            rounds = self.prefill_decode_interval  # it counts rounds, and these take no time
            while batch is None and rounds and (self.chunked_req or self.waiting_queue):
                rounds -= 1
                batch = self._choose(now)
            if batch is None:
                if not self.waiting_queue and self.chunked_req is None:
                    self.new_token_ratio_tracker.reset()
                if self._give_up(now):
                    busy = False
                    continue
                due = self.clock.next_at
                if due is None:
                    return self.log
                now, busy = max(due, now), False
                continue
            self.result_queue.append((batch.copy(), self._tokens(batch), now))
            if not self.late or len(self.result_queue) > 1:
                self._process()
            self.last_batch = batch
            now, busy = now + 1, True
        raise RuntimeError(f"{self.script.name}: more than {most_steps} steps")

    def _receive(self, upto: int) -> None:
        """What has come in by then; clients that hung up, in SGLang's own way."""
        gone = [number for number, _ in self.clock.hang_ups(upto)]
        self.enqueue(self.clock.take(upto))
        for number in gone:
            self.abort_request(AbortReq(rid=_name(number)))
            if self.reqs[number] not in self.collect_inflight_reqs():
                self._inside.discard(_name(number))

    def enqueue(self, numbers: list[int]) -> None:
        for number in numbers:
            call = self.script.calls[number]
            params = SamplingParams(max_new_tokens=call.limit, temperature=0.0)
            params.normalize(None)
            req = Req(
                _name(number),
                "",
                array("q", self.texts.prompt(number)),
                params,
                eos_token_ids=self.texts.ends,
                vocab_size=1 << 30,
                priority=call.priority if self.enable_priority_scheduling else None,
            )
            req.logprob_start_len = -1
            self.reqs[number] = req
            self._add_request_to_queue(req)

    def _choose(self, now: int) -> ScheduleBatch | None:
        self.out, self.now = [], now
        plan = self.get_next_batch_to_run(running_batch=self.running_batch, last_batch=self.last_batch)
        self.running_batch = plan.running_batch
        batch = plan.batch_to_run
        if batch is None:
            if self.out:
                self.log.append([now, [], self._free(), [], self.out])
            return None
        rows, admitted = [], []
        if batch.forward_mode.is_extend():
            decoding = set(batch.decoding_reqs or ())
            for req, tokens in zip(batch.reqs, batch.extend_lens, strict=True):
                rows.append([int(req.rid), int(tokens)])
                if req not in decoding and req.rid not in self._inside:
                    admitted.append([int(req.rid), req.prefix_len])
                    self._inside.add(req.rid)
        else:
            rows = [[int(req.rid), 1 + self.drafts] for req in batch.reqs]
        for number in self.out:
            self._inside.discard(_name(number))
        self.log.append([now, sorted(rows), self._free(), admitted, self.out])
        return batch

    def _free(self) -> int:
        allocator, tree = self.token_to_kv_pool_allocator, self.tree_cache
        if self.options.get("window_tokens"):
            return int(allocator.full_available_size() + tree.full_evictable_size())
        return int(allocator.available_size() + tree.evictable_size())

    def _give_up(self, now: int) -> bool:
        """What can never run is dropped, as the simulator does; SGLang would wait for ever."""
        if self.chunked_req is not None or not self.waiting_queue:
            return False
        head = int(self.waiting_queue.pop(0).rid)
        self.log.append([now, [], self._free(), [], [-1 - head]])
        self.clock.finished(head, now)
        return True

    # -- the model and its results --------------------------------------------------------------

    def _tokens(self, batch: ScheduleBatch) -> list[list[int] | None]:
        """The tokens of each row, or None where a prompt goes on."""
        tokens: list[list[int] | None] = []
        verifies = self.drafts and not batch.forward_mode.is_extend()
        for req in batch.reqs:
            number = int(req.rid)
            if req is self.chunked_req and batch.forward_mode.is_extend():
                tokens.append(None)
                continue
            done = self.emitted.get(number, 0)
            call = self.script.calls[number]
            if done >= call.output:
                tokens.append([EOS + 1])
                continue
            many = 1 + accepted(number, done, self.drafts) if verifies else 1
            ends = range(done, min(done + many, call.output))
            tokens.append([self.texts.output(number, at) for at in ends])
            self.emitted[number] = ends.stop
        return tokens

    def _process(self) -> None:
        batch, tokens, now = self.result_queue.popleft()
        extend = batch.forward_mode.is_extend()
        decoding = set(batch.decoding_reqs or ()) if extend else set(batch.reqs)
        for req, new in zip(batch.reqs, tokens, strict=True):
            if new is None:
                req.inflight_middle_chunks -= 1
                continue
            if req.finished():
                continue
            if req.is_retracted:
                self.emitted[int(req.rid)] -= len(new)
                continue
            if self.drafts and not extend:
                req.kv.kv_committed_len += len(new)
            req.output_ids.extend(new)
            req.update_finish_state(len(new))
            if req.finished():
                self.clock.finished(int(req.rid), now + 1)
                release_kv_cache(req, self.tree_cache, checkpoint=True)
                self._inside.discard(req.rid)
            elif req not in decoding:
                checkpoint_kv_cache(req, self.tree_cache)
