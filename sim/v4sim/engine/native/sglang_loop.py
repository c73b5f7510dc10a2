"""SGLang's scheduler object without its processes and weights.

Theirs: `Scheduler.get_next_batch_to_run` with everything it calls (queue policy, `PrefillAdder`, prefill
budget, new-token-ratio tracker, `ScheduleBatch` with its allocation, retraction and filtering), the unified
radix tree with history and windows, the paged allocators, the finish of a request. The object is made
without its constructor, which wants processes and a model, and is given what those methods read.

Ours: one choice in two halves (`propose` a prefill, then `decode`), since ranks under attention DP agree in
between; and the processing of results as far as it decides anything (`append`).

The only module that imports SGLang. V4's MTP is EAGLE to a scheduler, with bigrams for keys; DSpark has plain
keys and takes as many pages, so its decode steps are prepared by the same function.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.environ import envs
from sglang.srt.managers import schedule_policy
from sglang.srt.managers.io_struct import AbortReq
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import NewTokenRatioTracker
from sglang.srt.mem_cache import allocation
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

if TYPE_CHECKING:
    from v4sim.engine.native.sglang_engine import Options

torch: Any = allocation.torch  # what SGLang brings along; the simulator asks for none


def _write_rows(rows: Any, table: Any, begin: Any, end: Any, locs: Any, _: int) -> None:
    """What a kernel does on a GPU, with tensors: the new places of each call into its row."""
    done = 0
    for row, start, stop in zip(rows.tolist(), begin.tolist(), end.tolist(), strict=True):
        table[row, start:stop] = locs[done : done + stop - start].to(table.dtype)
        done += stop - start


class Nothing:
    """Answers every call with nothing: metrics, tracing, beams, sockets."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> int:
        return 0


def _as_it_is(batch: Any, *args: Any, **kwargs: Any) -> Any:
    return batch


class Loop(Scheduler):  # type: ignore[misc]  # SGLang has no types here, so its class is Any
    """One rank's scheduler. `retracted`, `aborted`: ids of the latest choice, first to last."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.retracted: list[str] = []
        self.aborted: list[str] = []
        self._queued = 0
        self._arguments()
        self._pools()
        self._state()

    def _arguments(self) -> None:
        """SGLang keeps its arguments once a process; all ranks of a run have the same."""
        options = self._options
        speculation: dict[str, Any] = {}
        if options.draft_tokens:  # one chain of drafts
            speculation = {
                "speculative_algorithm": "EAGLE",
                "speculative_num_steps": options.draft_tokens,
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": options.draft_tokens + 1,
            }
        args = ServerArgs(
            model_path="dummy",
            page_size=options.page_tokens,
            schedule_policy=options.schedule_policy,
            schedule_conservativeness=options.conservativeness,
            chunked_prefill_size=options.chunk_tokens or -1,
            max_prefill_tokens=options.max_prefill_tokens,
            prefill_max_requests=options.prefill_max_requests,
            retraction_policy=options.retraction_policy,
            enable_priority_scheduling=options.by_priority,
            disable_overlap_schedule=not options.overlap,
            attention_backend="torch_native",
            device="cpu",
            pp_max_micro_batch_size=options.max_running,
            **speculation,
        )
        set_global_server_args_for_scheduler(args)
        logging.getLogger("sglang").setLevel(logging.ERROR)
        schedule_policy.CLIP_MAX_NEW_TOKENS = options.clip_max_new_tokens
        # In V4 the window and the interval at which a call drops what has left it are both 128 tokens.
        envs.SGLANG_SWA_EVICTION_INTERVAL.set(options.window_tokens)
        allocation.assign_req_to_token_pool_func = _write_rows
        torch.set_num_threads(1)  # the tensors are small: threads would wait for each other

    def _pools(self) -> None:
        """Places for tokens without anything in them: one layer of one number for each of the two pools."""
        options = self._options
        self.page_size = page = options.page_tokens
        common = {"page_size": page, "dtype": torch.float16, "device": "cpu"}
        sizes = {"size": options.kv_tokens, "size_swa": options.swa_tokens}
        self.req_to_token_pool = ReqToTokenPool(
            size=options.max_running,
            max_context_len=options.context_tokens,
            device="cpu",
            enable_memory_saver=False,
        )
        layers = {"swa_attention_layer_ids": [1], "full_attention_layer_ids": [0]}
        pool = SWAKVPool(head_num=1, head_dim=1, **layers, **sizes, **common)
        self.token_to_kv_pool_allocator = SWATokenToKVPoolAllocator(
            kvcache=pool, need_sort=False, **sizes, **common
        )
        self.tree_cache = UnifiedRadixCache(
            params=CacheInitParams(
                disable=not options.prefix_cache,
                req_to_token_pool=self.req_to_token_pool,
                token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
                page_size=page,
                is_eagle=options.bigram_keys,
                sliding_window_size=options.window_tokens,
                tree_components=(ComponentType.FULL, ComponentType.SWA),
                chunked_prefill_size=options.chunk_tokens,
            )
        )

    def _state(self) -> None:
        options = self._options
        nothing = Nothing()
        self.dllm_config = self.chunked_req = self.dynamic_chunk_sizer = self.prefill_delayer = None
        self.min_free_slots_delayer = self.decode_offload_manager = self.hisparse_coordinator = None
        self.lora_drainer = self.truncation_align_size = self.scheduler_stage_metrics = None
        self.mm_receiver = self.rust_server = self._pending_chunked_abort_req = None
        self.enable_hisparse = self.enable_priority_preemption = self.enable_lora = False
        self.enable_hicache_storage = self.enable_lmcache = self.enable_hierarchical_cache = False
        self.enable_unified_cache_external_linker = self.enable_continuous_input_polling = False
        self.require_mlp_sync = False  # the replica stands for it
        self.enable_priority_scheduling = options.by_priority
        self.is_hybrid_swa = True  # V4 is: "batch is full" is forgotten every pass
        self.enable_overlap = self.enable_skip_finishing_decode = options.overlap
        drafts = options.draft_tokens
        self.spec_algorithm = SpeculativeAlgorithm.EAGLE if drafts else SpeculativeAlgorithm.NONE
        self.disaggregation_mode = DisaggregationMode.NULL
        self.prefill_decode_interval = options.prefill_decode_interval
        self._prefill_decode_interval_remaining = self.prefill_decode_interval_min_bs = 0
        self.priority_scheduling_preemption_threshold = 0
        self.max_prefill_bs = self.processed_tokens_counter = self.forward_ct = 0
        self.max_prefill_tokens = options.max_prefill_tokens
        self.chunked_prefill_size = options.chunk_tokens
        self.max_running_requests = options.max_running
        self.is_mixed_chunk = options.mixed_chunk
        self.device = "cpu"
        self.waiting_queue: list[Any] = []
        self.result_queue: deque[Any] = deque()
        self.new_token_ratio_tracker = NewTokenRatioTracker.from_config()
        self.model_config = SimpleNamespace(
            is_encoder_decoder=False, vocab_size=1024, hf_config=None, is_multimodal=False, hidden_size=1
        )
        self.policy = schedule_policy.SchedulePolicy(
            options.schedule_policy, self.tree_cache, False, options.by_priority, False
        )
        self.dp_attn_adapter = SimpleNamespace(
            maybe_prepare_mlp_sync_batch=_as_it_is, maybe_convert_decode_to_extend=_as_it_is
        )
        self.ngram_embedding_manager = SimpleNamespace(prepare_for_forward=_as_it_is)
        self.grammar_manager = SimpleNamespace(
            has_waiting_grammars=lambda: False, abort_requests=lambda request: None
        )
        self.beam_coordinator = self.metrics_reporter = self.load_inquirer = nothing
        self.tp_worker = SimpleNamespace(
            model_runner=SimpleNamespace(attn_backend=SimpleNamespace(), prefill_aware_swa=False)
        )
        self.running_batch = ScheduleBatch(reqs=[], batch_is_full=False)
        self.last_batch: Any = None

    # -- requests -------------------------------------------------------------------------------

    def enter(self, name: str, prompt: array[int], max_new_tokens: int, priority: int) -> Req:
        """A request reaches the queue."""
        params = SamplingParams(max_new_tokens=max_new_tokens, temperature=0.0)
        params.normalize(None)
        request = Req(
            name, "", prompt, params, priority=priority if self.enable_priority_scheduling else None
        )
        self._add_request_to_queue(request)
        return request

    def give_up(self, name: str) -> None:
        """As when the client has gone: at once if it waits, with its next step if it runs."""
        self.abort_request(AbortReq(rid=name))

    def _add_request_to_queue(self, req: Req, is_retracted: bool = False) -> None:
        if is_retracted:
            self.retracted.append(req.rid)
        self._queued += 1  # SGLang's clock of the wall, by which equal priorities are ordered
        req.time_stats.wait_queue_entry_time = float(self._queued)
        self.waiting_queue.append(req)

    def send_abort_output(self, abort_req: Any, req: Req) -> None:
        self.aborted.append(req.rid)

    def _process_hicache_events(self) -> None:
        return

    # -- a choice in two halves -----------------------------------------------------------------

    def propose(self) -> ScheduleBatch | None:
        """The prefill of the next step, if there is one."""
        plan = self.get_next_batch_to_run(running_batch=self.running_batch, last_batch=self.last_batch)
        self.running_batch = plan.running_batch
        return self._chosen(plan.batch_to_run)

    def update_running_batch(self, batch: ScheduleBatch) -> None:
        """The choice of a decode is put off: a prefill of another rank may take its place."""

    def decode(self) -> ScheduleBatch | None:
        """After a proposal without a prefill: who decodes; whoever loses his place for it is noted."""
        self.retracted, self.aborted = [], []
        if self.running_batch.is_empty():
            return self._chosen(None)
        return self._chosen(super().update_running_batch(self.running_batch))

    def _chosen(self, batch: ScheduleBatch | None) -> ScheduleBatch | None:
        if batch is not None and batch.is_empty():
            batch = None
        self.last_batch = batch
        if batch is not None:
            middle = self.chunked_req if batch.forward_mode.is_extend() else None
            self.result_queue.append((batch.copy(), middle))
        return batch

    # -- results --------------------------------------------------------------------------------

    def append(self, request: Req, tokens: array[int], *, computed: bool, prefilled: bool) -> bool:
        """What a step yielded for a request; whether it ended with it.

        `computed`: a verify step, whose accepted tokens become part of what is held. `prefilled`: its prompt
        is complete and becomes a prefix for others.
        """
        if computed:
            request.kv.kv_committed_len += len(tokens)
        request.output_ids.extend(tokens)
        request.update_finish_state(len(tokens))
        if request.finished():
            release_kv_cache(request, self.tree_cache, checkpoint=True)
            return True
        if prefilled:
            checkpoint_kv_cache(request, self.tree_cache)
        return False
