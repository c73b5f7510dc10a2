"""The installed vLLM as an `Engine`: its scheduler class, its KV cache manager, its planning of groups.

Theirs: every decision. Ours: the sizes of the pools, the contents (as block hashes) and what each step
yields. vLLM wants a model configuration; it gets that of a tiny text model, since nothing in a scheduler
looks at weights. MTP with one module is EAGLE to a scheduler; DSpark goes by its own name.

Left out: KV connectors, structured output, encoders, pipeline and context parallelism.
Tried with the vLLM of `config.installed`; another version works if its scheduler still takes what is asked
for here, and is refused in one sentence otherwise.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from v4sim.config.installed import installed_version, unlike_tried
from v4sim.engine.native.base import Batch, Request, Row
from v4sim.engine.native.content import ContentHasher
from v4sim.engine.native.groups import layer_specs
from v4sim.errors import ConfigError
from v4sim.model import ModelSpec
from v4sim.prefix import PrefixIndex

SCHEDULER = "vllm-native"
_ANY_TOKEN, _END_TOKEN = 0, 1
_LAYOUT = "BLHNC"  # the one that V4's indexer backend accepts: whole blocks outermost
_TEXT_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1024,
}


@dataclass(frozen=True, slots=True)
class Options:
    """One rank of a deployment, as vLLM's configuration words it."""

    page_tokens: int
    num_blocks: int  # with the one that vLLM never hands out
    max_model_len: int
    max_batched_tokens: int
    max_num_seqs: int
    long_prefill_token_threshold: int
    reserve_full_isl: bool
    watermark: float
    async_scheduling: bool
    prefix_cache: bool
    window_retention: str | None  # all, replay; None: as vLLM has it
    by_priority: bool
    draft_kind: str  # off, mtp, dspark
    draft_tokens: int
    draft_layers: int
    index_dtype: str


def engines(options: Options, spec: ModelSpec, prefixes: PrefixIndex) -> Callable[[], VllmEngine]:
    """What makes a rank's engine; the configuration is worked out once. `prefixes` are exact to the token."""
    installed_version(SCHEDULER)
    # Its log goes to stdout by default, which belongs to results.
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        config = _configuration(options)
        cache = _cache_groups(config, options, spec)
        VllmEngine(config, cache, options, prefixes)
    except ConfigError:
        raise
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise unlike_tried(SCHEDULER, error) from error
    return lambda: VllmEngine(config, cache, options, prefixes)


def _configuration(options: Options) -> Any:
    from vllm import config as vc

    with tempfile.TemporaryDirectory(prefix="v4sim-vllm-") as folder:
        shape = {**_TEXT_MODEL, "max_position_embeddings": options.max_model_len}
        (Path(folder) / "config.json").write_text(json.dumps(shape), encoding="utf-8")
        parallel = vc.ParallelConfig()
        model = vc.ModelConfig(
            model=folder,
            tokenizer=folder,
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=options.max_model_len,
        )
        cache = vc.CacheConfig(block_size=options.page_tokens, enable_prefix_caching=options.prefix_cache)
        cache.num_gpu_blocks = options.num_blocks
        if options.window_retention is not None:
            cache.prefix_cache_retention_interval = 0 if options.window_retention == "replay" else None
        speculative = None
        if options.draft_tokens:
            speculative = vc.SpeculativeConfig(
                method="eagle" if options.draft_kind == "mtp" else options.draft_kind,
                model=folder,
                num_speculative_tokens=options.draft_tokens,
                target_model_config=model,
                target_parallel_config=parallel,
            )
        config = vc.VllmConfig(
            model_config=model,
            cache_config=cache,
            scheduler_config=vc.SchedulerConfig(
                max_num_batched_tokens=options.max_batched_tokens,
                max_num_seqs=options.max_num_seqs,
                max_model_len=options.max_model_len,
                is_encoder_decoder=False,
                long_prefill_token_threshold=options.long_prefill_token_threshold,
                scheduler_reserve_full_isl=options.reserve_full_isl,
                watermark=options.watermark,
                policy="priority" if options.by_priority else "fcfs",
                async_scheduling=options.async_scheduling,
            ),
            device_config=vc.DeviceConfig("cpu"),
            parallel_config=parallel,
            speculative_config=speculative,
        )
    # What a GPU's backends would settle; here none is found, and not here does the deployment run.
    config.cache_config.kv_cache_layout = _LAYOUT
    config.scheduler_config.disable_hybrid_kv_cache_manager = False
    return config


def _cache_groups(config: Any, options: Options, spec: ModelSpec) -> Any:
    """The scheduler's view of V4's cache: vLLM's own grouping of the layers, over our number of blocks."""
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE
    from vllm.v1 import kv_cache_interface as interface
    from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups
    from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config

    layers = layer_specs(
        interface,
        STR_DTYPE_TO_TORCH_DTYPE,
        spec,
        options.index_dtype,
        options.page_tokens,
        options.draft_layers,
    )
    whole = interface.KVCacheConfig(
        num_blocks=options.num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=get_global_kv_cache_groups(config, [layers]),
        prefix_cache_retention_interval=config.cache_config.prefix_cache_retention_interval,
    )
    return generate_scheduler_kv_cache_config([whole])


class VllmEngine:
    """One scheduler of the installed vLLM with its cache."""

    def __init__(self, config: Any, cache: Any, options: Options, prefixes: PrefixIndex) -> None:
        from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
        from vllm.v1.structured_output import StructuredOutputManager

        self._config = config
        self._options = options
        self._prefixes = prefixes
        self._block_tokens, self._hash_tokens = resolve_kv_cache_block_sizes(cache, config)
        self._scheduler = config.scheduler_config.get_scheduler_cls()(
            vllm_config=config,
            kv_cache_config=cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=self._block_tokens,
            hash_block_size=self._hash_tokens,
        )
        self._ahead_tokens: int = config.num_hash_lookahead_tokens
        self._pool = self._scheduler.kv_cache_manager.block_pool
        self._arrived = 0
        self._waiting_for_results: deque[Any] = deque()

    @property
    def capacity_tokens(self) -> int:
        return (self._options.num_blocks - 1) * self._options.page_tokens

    @property
    def used_tokens(self) -> int:
        free: int = self._pool.get_num_free_blocks() * self._options.page_tokens
        return self.capacity_tokens - free

    @property
    def used_window_tokens(self) -> int:
        return 0

    def add(self, request: Request) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request as VllmRequest

        self._arrived += 1
        theirs = VllmRequest(
            request_id=str(request.number),
            prompt_token_ids=[_ANY_TOKEN] * request.prompt_tokens,
            sampling_params=SamplingParams(max_tokens=request.max_new_tokens, stop_token_ids=[_END_TOKEN]),
            pooling_params=None,
            arrival_time=float(self._arrived),
            priority=-request.priority,  # vLLM serves low values first
            block_hasher=ContentHasher(self._prefixes, request.uid, self._hash_tokens, self._ahead_tokens),
        )
        self._scheduler.add_request(theirs)

    def schedule(self) -> Batch:
        running = list(self._scheduler.running)
        output = self._scheduler.schedule()
        out = [int(r.request_id) for r in reversed(running) if r.status.name == "PREEMPTED"]
        requests = self._scheduler.requests
        rows = [
            Row(int(name), requests[name].num_computed_tokens - tokens, tokens)
            for name, tokens in output.num_scheduled_tokens.items()
        ]
        if rows:
            self._waiting_for_results.append(output)
        return Batch(rows, out)

    def hand_over(self, yields: Mapping[int, int], ended: frozenset[int]) -> None:
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        output = self._waiting_for_results.popleft()
        names = list(output.num_scheduled_tokens)
        sampled = []
        for name in names:
            tokens = [_ANY_TOKEN] * yields.get(int(name), 0)
            if int(name) in ended:
                tokens[-1] = _END_TOKEN
            sampled.append(tokens)
        self._scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: place for place, name in enumerate(names)},
                sampled_token_ids=sampled,
            ),
        )
        if self._options.draft_tokens and not self._options.async_scheduling:
            alive = [name for name in names if name in self._scheduler.requests]
            drafts = [[_ANY_TOKEN] * self._options.draft_tokens for _ in alive]
            self._scheduler.update_draft_token_ids(DraftTokenIds(alive, drafts))

    def lost_tokens(self, number: int, hit_tokens: int) -> int:
        # Where one group holds a longer prefix than all of them together, vLLM notes how far it reaches.
        reach: int = getattr(self._scheduler.requests[str(number)], "shared_prefix_boundary", 0)
        return max(0, reach - hit_tokens)

    def drop(self, number: int) -> None:
        from vllm.v1.request import RequestStatus

        self._scheduler.finish_requests(str(number), RequestStatus.FINISHED_ABORTED)
