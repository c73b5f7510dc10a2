"""vLLM's own Scheduler and KV cache manager, driven step by step on the CPU.

Theirs: `Scheduler`/`AsyncScheduler`, the KV cache manager with its block pool and hashes. Emulated
here: the loop around it (EngineCore's, with async scheduling one batch ahead), the model (tokens are
made up, the script says how many drafts are accepted and where an answer ends), and arrivals. The
speculative configuration is theirs, but made without its checks, which want a drafter's weights.

Async loop: batch i+1 is scheduled before the results of batch i are handed over, and sees the calls
that had arrived when batch i started.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import vllm
import vllm.model_executor.models.registry as registry
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from oracle.log import Entry
from oracle.script import Clock, Script, accepted
from oracle.tokens import EOS, Texts

VERSION = vllm.__version__
_CONTEXT = 1 << 21


class Loop:
    """One scheduler under one script."""

    _model: ModelConfig | None = None

    def __init__(self, script: Script) -> None:
        self.script = script
        self.options = script.options
        self.late = bool(script.options.get("async_scheduling", False))
        self.drafts = int(script.options.get("draft_tokens", 0))
        self.scheduler = self._make_scheduler()
        self.texts = Texts(script)
        self.clock = Clock(script)
        self.requests: dict[int, Request] = {}
        self.emitted: dict[int, int] = {}
        self.log: list[Entry] = []
        self.pending: tuple[Any, ModelRunnerOutput] | None = None
        self.steps = 0  # since it was last idle
        self.shared_interval = 1
        if script.options.get("shares_cadence"):
            self.shared_interval = self.scheduler.local_prefill_interval
            self.scheduler.local_prefill_interval = 1
        ahead = self.scheduler.num_hash_lookahead_tokens
        self._hasher = get_request_block_hasher(self.scheduler.hash_block_size, sha256, ahead)

    # -- construction ---------------------------------------------------------------------------

    @classmethod
    def model(cls) -> ModelConfig:
        """A model configuration needs a folder with a config.json; the weights are never asked for."""
        if cls._model is None:
            init_none_hash(sha256)
            # In this process, which knows the packages that `absent` stands for.
            registry._run_in_subprocess = lambda inspect: inspect()
            folder = Path(tempfile.mkdtemp(prefix="oracle-model-"))
            shape = {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 1,
                "num_attention_heads": 4,
                "num_key_value_heads": 4,
                "vocab_size": 1024,
                "max_position_embeddings": _CONTEXT,
            }
            (folder / "config.json").write_text(json.dumps(shape))
            cls._model = ModelConfig(
                model=str(folder),
                tokenizer=str(folder),
                skip_tokenizer_init=True,
                dtype="bfloat16",
                max_model_len=_CONTEXT,
            )
        return cls._model

    def _make_scheduler(self) -> Scheduler:
        options = self.options
        page = options["page_tokens"]
        blocks = options["kv_tokens"] // page + 1  # block 0 is the null block
        cache = CacheConfig(block_size=page, enable_prefix_caching=options.get("prefix_cache", True))
        cache.num_gpu_blocks = blocks
        config = VllmConfig(
            model_config=self.model(),
            scheduler_config=SchedulerConfig(
                max_num_batched_tokens=options["max_batched_tokens"],
                max_num_seqs=options["max_num_seqs"],
                max_model_len=_CONTEXT,
                is_encoder_decoder=False,
                long_prefill_token_threshold=options.get("long_prefill_token_threshold", 0),
                scheduler_reserve_full_isl=options.get("reserve_full_isl", True),
                watermark=options.get("watermark", 0.0),
                prefill_schedule_interval=options.get("prefill_schedule_interval", 1),
                policy="priority" if any(call.priority for call in self.script.calls) else "fcfs",
                async_scheduling=self.late,
            ),
            cache_config=cache,
            device_config=DeviceConfig("cpu"),
            parallel_config=ParallelConfig(),
        )
        if self.drafts:
            config.speculative_config = _speculative(
                options.get("speculation", "mtp"), self.drafts, options.get("lookahead_hashes", True)
            )
        groups = self._groups(config, blocks)
        block, hashed = resolve_kv_cache_block_sizes(groups, config)
        kind = AsyncScheduler if self.late else Scheduler
        return kind(config, groups, StructuredOutputManager(config), block_size=block, hash_block_size=hashed)

    def _groups(self, config: VllmConfig, blocks: int) -> KVCacheConfig:
        page = self.options["page_tokens"]
        spec = FullAttentionSpec(block_size=page, num_kv_heads=1, head_size=1, dtype=torch.float32)
        return KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)])

    # -- the loop -------------------------------------------------------------------------------

    def run(self, most_steps: int = 100_000) -> list[Entry]:
        now, busy, empty = 0, False, None
        while len(self.log) < most_steps:
            seen = now - 1 if self.late and busy else now
            self._hang_up(seen)
            self._arrive(seen)
            out = self._schedule(now)
            if out is None and self.pending is not None:
                # Nothing may join the running batch: its results come first, and with them arrivals.
                self._hand_over(now)
                self._arrive(now)
                out = self._schedule(now)
            if out is None:
                if self.log and self.log[-1][:2] == [now, []] and self.log[-1] is not empty:
                    empty = self.log[-1]  # somebody was preempted and nothing is left of the batch: once more
                    continue
                if self._give_up(now):
                    busy, self.steps = False, 0
                    continue
                due = self.clock.next_at
                if due is None:
                    return self.log
                now, busy, self.steps = max(due, now), False, 0
                continue
            result = (out, self._compute(out, now))
            if self.late:
                if self.pending is not None:
                    self._hand_over(now)
                self.pending = result
            else:
                self.pending = result
                self._hand_over(now + 1)
            now, busy, self.steps = now + 1, True, self.steps + 1
        raise RuntimeError(f"{self.script.name}: more than {most_steps} steps")

    def _arrive(self, upto: int) -> None:
        for number in self.clock.take(upto):
            call = self.script.calls[number]
            params = SamplingParams(max_tokens=call.limit, temperature=0.0)
            params.update_from_generation_config({}, EOS)
            request = Request(
                request_id=str(number),
                prompt_token_ids=self.texts.prompt(number),
                sampling_params=params,
                pooling_params=None,
                arrival_time=float(len(self.requests)),
                priority=-call.priority,  # vLLM serves low values first
                block_hasher=self._hasher,
            )
            self.requests[number] = request
            self.emitted[number] = 0
            self.scheduler.add_request(request)

    def _hang_up(self, upto: int) -> None:
        for number, _ in self.clock.hang_ups(upto):
            self.scheduler.finish_requests(str(number), RequestStatus.FINISHED_ABORTED)

    def _schedule(self, now: int) -> Any:
        before = {
            n: (r.num_preemptions, str(r.status)) for n, r in self.requests.items() if not r.is_finished()
        }
        # With several ranks the engine core holds prefills back by a count of steps that they share.
        throttle = self.shared_interval > 1 and self.steps % self.shared_interval != 0
        out = self.scheduler.schedule(throttle)
        scheduled = out.num_scheduled_tokens
        evicted = [n for n, (count, _) in before.items() if self.requests[n].num_preemptions > count]
        # Preempted calls were put at the head one by one: the head is the last that left.
        order = {request.request_id: place for place, request in enumerate(self.scheduler.waiting)}
        evicted.sort(key=lambda n: -order.get(str(n), 0))
        if not scheduled:
            if evicted:
                self.log.append([now, [], self._free(), [], evicted])
            return None
        admitted = []
        for new in out.scheduled_new_reqs:
            admitted.append([int(new.req_id), new.num_computed_tokens])
        resumed = getattr(out.scheduled_cached_reqs, "resumed_req_ids", ())
        for req_id, computed in zip(
            out.scheduled_cached_reqs.req_ids, out.scheduled_cached_reqs.num_computed_tokens, strict=True
        ):
            if req_id in resumed:
                admitted.append([int(req_id), computed])
        place = {req_id: index for index, req_id in enumerate(scheduled)}
        admitted.sort(key=lambda entry: place[str(entry[0])])
        rows = sorted([int(req_id), tokens] for req_id, tokens in scheduled.items())
        self.log.append([now, rows, self._free(), admitted, evicted])
        return out

    def _free(self) -> int:
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() * self.options["page_tokens"]

    def _give_up(self, now: int) -> bool:
        """What can never run is dropped, as the simulator does; vLLM itself would wait for ever."""
        waiting = self.scheduler.waiting
        if not waiting or self.scheduler.running:
            return False
        head = int(waiting.peek_request().request_id)
        self.scheduler.finish_requests(str(head), RequestStatus.FINISHED_ABORTED)
        self.scheduler.finished_req_ids = set()
        self.log.append([now, [], self._free(), [], [-1 - head]])
        self.clock.finished(head, now)
        return True

    def _compute(self, out: Any, now: int) -> ModelRunnerOutput:
        """The tokens of a step: one after a whole prefill or a decode, plus what drafts are accepted."""
        ids = list(out.num_scheduled_tokens)
        new = {number for number, _ in self.log[-1][3]}
        sampled = []
        for req_id in ids:
            number = int(req_id)
            if self.requests[number].is_prefill_chunk:
                sampled.append([])
                continue
            call, done = self.script.calls[number], self.emitted[number]
            if done >= call.output:
                sampled.append([EOS + 1])  # a row of a call that has ended: nobody reads it
                continue
            # A newcomer that was padded to the verify width has no drafts yet.
            drafts = 0 if number in new else len(out.scheduled_spec_decode_tokens.get(req_id, ()))
            count = 1 + (accepted(number, done, self.drafts) if drafts else 0)
            count = min(count, drafts + 1, call.output - done)
            sampled.append([self.texts.output(number, done + i) for i in range(count)])
            self.emitted[number] = done + count
            if done + count >= call.output:
                self.clock.finished(number, now + 1)
        return ModelRunnerOutput(
            req_ids=ids, req_id_to_index={r: i for i, r in enumerate(ids)}, sampled_token_ids=sampled
        )

    def _hand_over(self, now: int) -> None:
        """Results of a step that has ended by `now`; whoever hung up meanwhile is taken out before."""
        assert self.pending is not None
        self._hang_up(now)
        out, result = self.pending
        self.pending = None
        self.scheduler.update_from_output(out, result)
        if self.drafts and not self.late:
            ids = [r for r in result.req_ids if r in self.scheduler.requests]
            drafts = DraftTokenIds(ids, [[EOS + 1] * self.drafts for _ in ids])
            self.scheduler.update_draft_token_ids(drafts)


def _speculative(method: str, drafts: int, lookahead_hashes: bool) -> SpeculativeConfig:
    """A drafter of one layer. Without `lookahead_hashes` the last matched block is dropped instead."""
    config = object.__new__(SpeculativeConfig)
    blank = {field.name: field.default for field in dataclasses.fields(SpeculativeConfig)}
    config.__dict__.update(blank)
    shape = SimpleNamespace(num_nextn_predict_layers=1, sample_from_anchor=True, model_type=method)
    config.method = method
    config.num_speculative_tokens = drafts
    config.draft_model_config = SimpleNamespace(hf_config=shape, architectures=[])
    config.disable_lookahead_block_hashes = not lookahead_hashes
    return config
